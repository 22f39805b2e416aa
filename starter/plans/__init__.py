"""What would be done, said before anything is: `nodewarden … plan`, from files or from a cluster."""
