"""`headrace up`: every service of the suite on this machine, under one supervisor."""
