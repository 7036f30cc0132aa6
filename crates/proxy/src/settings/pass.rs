//! The settings that all families of directives for passing requests on have (`proxy_…`, `fastcgi_…` and
//! others): one type, with nginx's defaults, its rules of inheritance and the mistakes that it finds when a
//! level is complete.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::Error;
use clearway_http::temp_paths::TempPath;
use clearway_http::{Own, Setting, Value, settings};

use crate::settings::cache::{CacheConf, Keeping};
use crate::settings::masks::{Failures, Ignored};
use crate::settings::names::NameSet;
#[cfg(feature = "tls")]
use crate::settings::tls::TlsConf;

/// A page of nginx's, which many of its defaults are: bytes.
const PAGE_BYTES: u64 = 4096;

settings! {
    /// The settings of a location that all families have.
    pub(crate) struct PassConf {
        pub(crate) bind: Setting<Option<Arc<Bind>>>,
        pub(crate) socket_keepalive: Setting<bool> = false,
        /// 0: as the system has it.
        pub(crate) receive_buffer_bytes: Setting<u64> = 0,
        /// 0: as the system has it.
        pub(crate) send_buffer_bytes: Setting<u64> = 0,
        pub(crate) connect_timeout_ms: Setting<u64> = 60_000,
        pub(crate) send_timeout_ms: Setting<u64> = 60_000,
        pub(crate) read_timeout_ms: Setting<u64> = 60_000,
        pub(crate) send_lowat: Setting<u64> = 0,
        /// The limit of a response's head, bytes.
        pub(crate) buffer_bytes: Setting<u64> = PAGE_BYTES,
        /// How many, and the bytes of each.
        pub(crate) buffers: Setting<(u64, u64)> = (8, PAGE_BYTES),
        pub(crate) busy_bytes: Setting<Option<u64>>,
        pub(crate) buffering: Setting<bool> = true,
        pub(crate) request_buffering: Setting<bool> = true,
        pub(crate) ignore_client_abort: Setting<bool> = false,
        pub(crate) intercept_errors: Setting<bool> = false,
        pub(crate) force_ranges: Setting<bool> = false,
        pub(crate) limit_rate: Setting<Option<Value>>,
        pub(crate) temp_path: Setting<Option<Arc<TempPath>>>,
        pub(crate) max_temp_file_bytes: Setting<Option<u64>>,
        pub(crate) temp_file_write_bytes: Setting<Option<u64>>,
        pub(crate) next_upstream: Setting<Failures> = Failures::ERROR_OR_TIMEOUT,
        /// 0: as many as there are.
        pub(crate) next_upstream_tries: Setting<u64> = 0,
        /// 0: for as long as it takes.
        pub(crate) next_upstream_timeout_ms: Setting<u64> = 0,
        pub(crate) pass_headers: Setting<Vec<Bytes>>,
        pub(crate) hide_headers: Setting<Vec<Bytes>>,
        pub(crate) ignore_headers: Setting<Ignored>,
        pub(crate) pass_request_headers: Setting<bool> = true,
        pub(crate) pass_request_body: Setting<bool> = true,
        pub(crate) pass_trailers: Setting<bool> = false,
        pub(crate) keeping: Keeping,
        pub(crate) store_access: Setting<u32> = 0o600,
        pub(crate) cache: CacheConf,
        pub(crate) tls: TlsConf,
        /// The header lines that are not passed to the client, computed from three lists.
        pub(crate) hidden: Own<Arc<NameSet>>,
    }
}

#[cfg(not(feature = "tls"))]
settings! {
    /// Without TLS in the build there are no settings of it.
    pub(crate) struct TlsConf {}
}

/// Where responses are kept as files (`…_store`).
#[derive(Clone, Debug)]
pub(crate) enum StoreAt {
    /// Where `root` or `alias` leads.
    Root,
    Path(Value),
}

/// `…_bind`
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) address: BindAddress,
    pub(crate) form: BindForm,
}

/// Which local address connections come from.
#[derive(Clone, Debug)]
pub(crate) enum BindAddress {
    Fixed(SocketAddr),
    Evaluated(Value),
}

/// Whether the address has to be one of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BindForm {
    Own,
    Transparent,
}

/// A local address, with a port or without.
pub(crate) fn parse_local(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let with_port = || text.parse().ok();
    text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0)).or_else(with_port)
}

impl PassConf {
    /// Completes a level: works out what is hidden, where all is inherited from.
    ///
    /// # Errors
    /// Sizes that do not fit each other, in nginx's words.
    pub(crate) fn complete(&mut self, prefix: &str, hidden_by_default: &[&str]) -> Result<(), Error> {
        let passed = &*self.pass_headers;
        let is_passed = |name: &[u8]| passed.iter().any(|other| other.eq_ignore_ascii_case(name));
        let defaults = hidden_by_default.iter().map(|name| name.as_bytes());
        let names = defaults.chain(self.hide_headers.iter().map(|name| &name[..]));
        *self.hidden = Arc::new(names.filter(|name| !is_passed(name)).collect());
        self.check_sizes(prefix).map_or(Ok(()), |text| Err(Error::unplaced(text)))
    }

    fn check_sizes(&self, prefix: &str) -> Option<String> {
        let (number, bytes) = *self.buffers;
        let larger = bytes.max(*self.buffer_bytes);
        let busy_bytes = self.busy_bytes.unwrap_or(2 * larger);
        let largest = format!(
            "the maximum of the value of \"{prefix}_buffer_size\" and one of the \"{prefix}_buffers\""
        );
        if number < 2 {
            return Some(format!("there must be at least 2 \"{prefix}_buffers\""));
        }
        if busy_bytes < larger {
            let name = format!("\"{prefix}_busy_buffers_size\"");
            return Some(format!("{name} must be equal to or greater than {largest}"));
        }
        if busy_bytes > (number - 1).saturating_mul(bytes) {
            let all = format!("the size of all \"{prefix}_buffers\" minus one buffer");
            return Some(format!("\"{prefix}_busy_buffers_size\" must be less than {all}"));
        }
        if self.write_bytes() < larger {
            let name = format!("\"{prefix}_temp_file_write_size\"");
            return Some(format!("{name} must be equal to or greater than {largest}"));
        }
        let file_bytes = self.file_max_bytes();
        (file_bytes != 0 && file_bytes < larger).then(|| {
            format!(
                "\"{prefix}_max_temp_file_size\" must be equal to zero to disable temporary files usage or \
                 must be equal to or greater than {largest}"
            )
        })
    }

    /// `…_temp_file_write_size`
    pub(crate) fn write_bytes(&self) -> u64 {
        let (_, bytes) = *self.buffers;
        self.temp_file_write_bytes.unwrap_or(2 * bytes.max(*self.buffer_bytes))
    }

    /// `…_max_temp_file_size`; 0: none is made.
    pub(crate) fn file_max_bytes(&self) -> u64 {
        self.max_temp_file_bytes.unwrap_or(1024 * 1024 * 1024)
    }

    /// Bytes of a response that may be in memory.
    pub(crate) fn memory_max_bytes(&self) -> u64 {
        let (number, bytes) = *self.buffers;
        number.saturating_mul(bytes).max(*self.buffer_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_message::Known;

    #[test]
    fn sizes_must_fit_each_other() {
        let said = |change: fn(&mut PassConf)| {
            let mut conf = PassConf::default();
            change(&mut conf);
            conf.check_sizes("p").unwrap_or_default()
        };
        assert_eq!(said(|_| ()), "");
        let largest = "the maximum of the value of \"p_buffer_size\" and one of the \"p_buffers\"";
        assert_eq!(said(|conf| conf.buffers.set((1, 4096))), "there must be at least 2 \"p_buffers\"");
        assert_eq!(
            said(|conf| conf.busy_bytes.set(Some(4095))),
            format!("\"p_busy_buffers_size\" must be equal to or greater than {largest}")
        );
        assert_eq!(
            said(|conf| conf.buffer_bytes.set(64 * 1024)),
            "\"p_busy_buffers_size\" must be less than the size of all \"p_buffers\" minus one buffer"
        );
        assert_eq!(
            said(|conf| conf.temp_file_write_bytes.set(Some(1))),
            format!("\"p_temp_file_write_size\" must be equal to or greater than {largest}")
        );
        assert!(said(|conf| conf.max_temp_file_bytes.set(Some(1))).ends_with(largest));
        assert_eq!(said(|conf| conf.max_temp_file_bytes.set(Some(0))), "");
    }

    #[test]
    fn what_is_hidden_may_be_passed() {
        let mut conf = PassConf::default();
        conf.hide_headers.here().push(Bytes::from_static(b"X-One"));
        conf.pass_headers.here().push(Bytes::from_static(b"server"));
        conf.complete("p", &["Date", "Server"]).unwrap();
        let is_hidden = |name: &[u8]| conf.hidden.has(Known::find(name), name);
        let hidden = [&b"date"[..], b"SERVER", b"x-one", b"X-Two"].map(is_hidden);
        assert_eq!(hidden, [true, false, true, false]);
    }
}
