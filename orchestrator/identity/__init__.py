"""Machines' identities: keys, certificate requests, the authority, and trust in TLS.

    names.py      what a certificate says of its bearer, and what it may be used for
    requests.py   what a machine enrols with: its token, which carries the authority's fingerprint, its key and its
                  request (PKCS #10); what of a request is believed: its key
    authority.py  our certificate authority: makes itself, issues certificates
    files.py      keys and certificates on the disk, a key for its owner alone
    trust.py      TLS contexts of the service and of its clients
    trail.py      the audit trail: the key that signs its anchors, and how a trail is verified

Both sides of an enrolment need it, so it knows neither the store nor the REST interface. Time is an argument.
"""
