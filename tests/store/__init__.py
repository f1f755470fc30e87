"""The stores behind the Store port, held to one behaviour, and the thread that commits to them."""
