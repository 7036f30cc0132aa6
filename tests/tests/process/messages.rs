//! What the error log says of a server's life, line by line as nginx says it.
