"""HTTP server: an OpenAI-compatible API and a web page for any model.

A request passes `http` (connection), `middleware` (access log, access control, timeout) and `json_body` (parsing)
to its route in `routes`, which submits tasks to the `worker` of the model; see docs/server-architecture.md.
"""
