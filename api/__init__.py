"""The REST API: FastAPI routes over `orchestrator.control`. Pydantic lives here and nowhere else.

app.py          the application: routes, middleware, handlers of errors
context.py      what a request may use, and reading its parts: body, conditions, keys
auth.py         who is asking, and what that one may see
problems.py     errors as problems (RFC 9457), in one table
answers.py      bodies, ETags and pages on their way out
streams.py      events as they happen
history.py      older versions of lists; inspection.py: dry runs, traces, cost
limits.py       how much of a body is read
middleware.py   a log event and measurements a request, a write's time by stage, refusals, strangers that wait
waiting.py      writes that are answered when they are enforced
schemas/        what bodies look like; the OpenAPI document is made from them
routes/         one module a group of resources
"""
