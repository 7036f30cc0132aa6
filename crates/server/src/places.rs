//! Where things are that nobody names.

/// Debian's places, as its nginx has them.
pub const PREFIX_DEFAULT: &str = "/usr/share/nginx/";
/// The configuration file.
pub const CONF_DEFAULT: &str = "/etc/nginx/nginx.conf";
/// Where errors go that no `error_log` takes.
pub const ERROR_LOG_DEFAULT: &str = "/var/log/nginx/error.log";
/// Where requests go that no `access_log` takes.
pub const ACCESS_LOG_DEFAULT: &str = "/var/log/nginx/access.log";
/// The file with the number of the process.
pub const PID_DEFAULT: &str = "/run/nginx.pid";
