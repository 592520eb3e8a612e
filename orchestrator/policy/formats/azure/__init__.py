"""Azure network security groups as `az network nsg show`, the REST interface and ARM templates give them."""
