"""The local page: what `evolvable ui` serves to the browser of the person at this machine."""
