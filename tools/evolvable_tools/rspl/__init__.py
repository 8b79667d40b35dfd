"""The resource protocol of Autogenesis (RSPL): its operators over the six kinds, and running a resource."""
