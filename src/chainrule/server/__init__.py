"""HTTP server: an OpenAI-compatible API and a web page for any model.

Every request passes the middleware in `frame` (access log, headers, errors), `keys` (authorization), `patience`
(timeout, disconnect) and `body` (strict JSON) before its route; routes get the model and its `scheduler` from
`registry`.
"""
