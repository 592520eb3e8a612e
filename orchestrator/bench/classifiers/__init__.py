"""Suite classifiers: bit vectors of firewall servers, beside other searches of general rules."""
