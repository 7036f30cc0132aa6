//! The output of `-v`, `-V` and `-h`: this server's name, the nginx it behaves as, and what of that nginx is
//! built in. Tools read these lines.

use std::fmt::Write;

use clearway_http::NGINX_VERSION;
use clearway_http::temp_paths::CLIENT_BODY_TEMP_DEFAULT;

use crate::nginx_modules::BuiltIn;
use crate::places::{ACCESS_LOG_DEFAULT, CONF_DEFAULT, ERROR_LOG_DEFAULT, PID_DEFAULT, PREFIX_DEFAULT};

/// The lines of `-v`.
#[must_use]
pub fn version() -> String {
    format!(
        "clearway version: clearway/{}\nnginx version: nginx/{NGINX_VERSION}\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The text of `-V` about TLS: the library behaves as this version of OpenSSL, and test suites look for it.
#[cfg(feature = "tls")]
const TLS: &str = "built with OpenSSL 3.0.2\nTLS SNI support enabled\n";
#[cfg(not(feature = "tls"))]
const TLS: &str = "";

/// The lines that `-V` adds. What is true of the system's compiler is not known here.
#[must_use]
pub fn configure_arguments() -> String {
    format!("{TLS}configure arguments:{}\n", arguments())
}

/// The text behind `configure arguments:`, with a space in front.
pub(crate) fn arguments() -> String {
    let mut line = format!(
        " --prefix={} --conf-path={CONF_DEFAULT} \
         --http-log-path={ACCESS_LOG_DEFAULT} --error-log-path={ERROR_LOG_DEFAULT} --pid-path={PID_DEFAULT} \
         --http-client-body-temp-path={CLIENT_BODY_TEMP_DEFAULT}",
        PREFIX_DEFAULT.trim_end_matches('/')
    );
    write!(line, "{}", BuiltIn::new().configure_arguments()).expect("writing to a String does not fail");
    line
}

/// The text that `-h` adds: nginx's options, and the commands that nginx does not have.
#[must_use]
pub fn usage() -> String {
    format!(
        "Usage: clearway [-?hvVtTq] [-s signal] [-p prefix]
                [-e filename] [-c filename] [-g directives]
       clearway serve DIR [--tls] [--listen ADDRESS:PORT] [--print-config]

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: {PREFIX_DEFAULT})
  -e filename   : set error log file (default: {ERROR_LOG_DEFAULT})
  -c filename   : set configuration file (default: {CONF_DEFAULT})
  -g directives : set global directives out of configuration file

Commands:
  serve DIR     : serve the files of a directory, at 127.0.0.1:8080 or the next
                  free port; --listen takes another address, --print-config
                  prints the configuration that this stands for, --tls speaks
                  HTTPS, from port 8443 on, with a certificate for development,
                  and sends plain requests there

"
    )
}
