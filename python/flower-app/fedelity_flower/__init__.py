"""Any method of Fedelity on Flower."""
