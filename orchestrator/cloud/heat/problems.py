"""Map errors of the OpenStack libraries to ours: by HTTP status, else as Unreachable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import heatclient.exc
import keystoneauth1.exceptions
import openstack.exceptions

from orchestrator.cloud.heat.words import in_words, is_over_quota
from orchestrator.errors import (
    AclflowError,
    BadInput,
    Busy,
    Forbidden,
    NotFound,
    Refused,
    TooLarge,
    Unauthenticated,
    Unreachable,
)

_NO_SUCH_SERVICE = (
    keystoneauth1.exceptions.EndpointNotFound,
    keystoneauth1.exceptions.CatalogException,
    openstack.exceptions.NotSupported,
    openstack.exceptions.ServiceDisabledException,
)
_NOT_CONFIGURED = (
    openstack.exceptions.ConfigException,
    keystoneauth1.exceptions.MissingRequiredOptions,
    keystoneauth1.exceptions.NoMatchingPlugin,
    keystoneauth1.exceptions.MissingAuthPlugin,
)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise the libraries' errors inside as ours.

    `what` is the request: ``Heat for the stack x``.
    """
    try:
        yield
    except _NO_SUCH_SERVICE as error:
        raise Refused(f"asked {what}: this cloud has no such service: {error}") from None
    except _NOT_CONFIGURED as error:
        raise BadInput(f"clouds.yaml does not suffice: {' '.join(str(error).split())}", place="cloud") from None
    except heatclient.exc.HTTPException as error:
        raise of_status(error.code, what, str(error)) from None
    except keystoneauth1.exceptions.HttpError as error:
        raise of_status(error.http_status, what, str(error.message)) from None
    except openstack.exceptions.HttpException as error:
        raise of_status(error.status_code, what, str(error.details or error.message or error)) from None
    except (
        keystoneauth1.exceptions.ClientException,
        heatclient.exc.BaseException,
        openstack.exceptions.SDKException,
    ) as error:
        raise Unreachable(f"asked {what}, got no answer: {' '.join(str(error).split())}") from None


def of_status(status: int | None, what: str, message: str) -> AclflowError:
    """Return the error of an answer.

    5xx is no answer: the request may have been carried out, or may still be.
    """
    words = in_words(message)
    text = f"asked {what}: {words}"
    if status is None or status >= 500:
        return Unreachable(f"asked {what}, answered {status}: {words}")
    if status == 401:
        return Unauthenticated(f"asked {what}: OpenStack does not take the credentials of clouds.yaml: {words}")
    if status in (403, 413) or (status == 400 and is_over_quota(message)):
        return TooLarge(text) if status == 413 or is_over_quota(message) else Forbidden(text)
    if status == 404:
        return NotFound(text)
    if status in (408, 409, 429):
        return Busy(text)
    return Refused(text)
