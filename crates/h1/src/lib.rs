//! Sans-I/O codec for HTTP/1.0 and 1.1.
