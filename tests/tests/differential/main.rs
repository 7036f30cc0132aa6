//! One configuration, the same raw requests, nginx (as it was recorded, or live) and Clearway: the answers
//! are equal but for name, version and date. A failure prints both answers and the command that plays the
//! exchange again.
#![forbid(unsafe_code)]

mod access;
mod access_log;
mod autoindex;
mod broken;
mod cached;
mod charset;
mod combinations;
mod command_line;
mod configuration;
mod dav;
mod dishonest;
mod error_log;
mod errors;
mod files;
mod gateways;
mod gzip;
mod gzip_static;
mod handshakes;
mod headers;
mod http2;
mod keepalive;
mod limits;
mod listen;
mod location;
mod malformed;
mod map;
mod media;
mod origin;
mod post_action;
mod proxied;
mod proxied_beside;
mod proxy_protocol;
mod proxy_store;
mod realip;
mod requests;
mod returns;
mod rewrite;
mod server_name;
mod sites;
mod sites_access;
mod slice;
mod smuggling;
mod ssi;
mod static_files;
mod stock;
mod stub_status;
mod sub_filter;
mod subrequests;
mod tls_offers;
mod tls_variables;
mod tunnel_pass;
mod visitors;
