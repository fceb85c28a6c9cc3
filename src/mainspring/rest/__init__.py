"""What server and client agree on: shapes, routes and problems. Neither of them is in here."""
