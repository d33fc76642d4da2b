"""The HTTP server and its page: FastAPI over any model.

A request goes through `frame` (log, headers, errors), `keys` (who asks), `patience` (how long, and whether anybody
still waits), `body` (strict JSON), then to a route; a route asks the `service` for a model and its `scheduler`.
"""
