"""The page and what is below it: the same views that the command line shows, over HTTP."""
