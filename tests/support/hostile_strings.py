"""Strings that would act in a browser, or hide something from its reader, were they not shown as
text.
"""

OWN = [
    "<script>window.hacked=1</script>",
    "</pre><img src=x onerror=window.hacked=1>",
    '"><svg/onload=window.hacked=1>',
    "' autofocus onfocus='window.hacked=1",
    (
        "[x](javascript:window.hacked=1) [y](JaVaScRiPt:1) [z](data:text/html,<script>1</script>) "
        "[v](vbscript:1)"
    ),
    (
        '[x](http://evil.example/?q="onmouseover=1) ![i](http://evil.example/pixel.png) '
        "<http://evil.example>"
    ),
    (
        "<iframe src=http://evil.example></iframe><form "
        "action=http://evil.example><button>Approve</button></form>"
    ),
    "<meta http-equiv=refresh content='0;url=http://evil.example'><base href=http://evil.example>",
    (
        "<hx-partial></hx-partial><div hx-get=/do/undo hx-trigger=load hx-on:load=1 "
        "data-hx-boost=true>"
    ),
    "<style>*{display:none}</style><link rel=stylesheet href=http://evil.example/x.css>",
    "safe\u202e\u2066txt.exe\u2069 zero\u200bwidth tag\U000e0041 del\x7f nul\x01 line\u2028end",
    "&lt;script&gt; &#x3c;script&#x3e; \ud7ff",
    '```"onload=1\n</code></pre><script>1</script>\n```',
    "| a | b |\n|:-|-:|\n| <b onclick=1> | x |",
]
