"""Azure network security groups, from `az network nsg show`, the REST interface and ARM templates."""
