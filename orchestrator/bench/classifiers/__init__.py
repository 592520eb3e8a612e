"""Suite classifiers: bit vectors, which firewall servers search general rules with, beside what else was to be had."""
