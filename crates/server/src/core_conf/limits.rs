//! Numbers of the directives outside `http`: defaults, largest values, and how those are read that have
//! rules of their own.

use clearway_base::log::{Verbatim, bytes_of};
use std::time::Duration;

use clearway_base::units;
use clearway_conf::{Directive, Error};
use clearway_watchdog::Rate;

/// A stuck poll is handed over after one to two times this (docs/performance.md has the measurement behind
/// it).
pub const HANDOVER_AFTER_DEFAULT: Duration = Duration::from_millis(1);

/// Default of `handover_carriers`.
pub const HANDOVER_CARRIERS_DEFAULT: u64 = 512;

/// Default of `worker_connections`.
pub const WORKER_CONNECTIONS_DEFAULT: u64 = 512;

/// Most `worker_processes`, as nginx's `NGX_MAX_PROCESSES`.
const WORKER_PROCESSES_MAX: u64 = 1024;

/// Most `handover_carriers`: with as many loops as there can be, a loop's word still tells all apart.
pub(super) const HANDOVER_CARRIERS_MAX: u64 = 8192;

pub(super) fn worker_processes(d: &Directive) -> Result<u64, Error> {
    if d.value(0)? == "auto" {
        return Ok(clearway_os::process::processors() as u64);
    }
    let invalid = |_| d.reject("invalid value");
    d.number_within(0, 0, Some(WORKER_PROCESSES_MAX)).map_err(invalid)
}

pub(super) fn worker_connections(d: &Directive) -> Result<u64, Error> {
    let invalid = |_| d.error(bytes_of(&format!("invalid number \"{}\"", Verbatim(&d.args[0]))));
    d.number(0).map_err(invalid)
}

/// A number that may have a sign. What nothing can be set to is cut to what it will come to.
pub(super) fn worker_priority(d: &Directive) -> Result<i32, Error> {
    let text = d.value(0)?;
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) => (-1, digits),
        Some((b'+', digits)) => (1, digits),
        _ => (1, &text[..]),
    };
    let number = units::parse_number(digits).ok_or_else(|| d.reject("invalid number"))?;
    Ok(sign * i32::try_from(number).unwrap_or(i32::MAX))
}

/// A time, or `off`: `handover_after`, `stall_report_after`.
pub(super) fn time_or_off(d: &Directive) -> Result<Option<Duration>, Error> {
    if d.value(0)? == "off" {
        return Ok(None);
    }
    let time = d.msec(0)?;
    if time.is_zero() {
        let name = Verbatim(&d.name);
        return Err(d.error(format!("invalid value \"0\" in \"{name}\" directive, it is a time or \"off\"")));
    }
    Ok(Some(time))
}

/// `NUMBERr/s` or `NUMBERr/m`, as `limit_req_zone` has it.
pub(super) fn stall_report_rate(d: &Directive) -> Result<Rate, Error> {
    let text = d.value(0)?;
    let (digits, per) = match &text[..] {
        [digits @ .., b'r', b'/', b's'] => (digits, Duration::from_secs(1)),
        [digits @ .., b'r', b'/', b'm'] => (digits, Duration::from_mins(1)),
        digits => (digits, Duration::from_secs(1)),
    };
    let number = units::parse_number(digits).and_then(|number| u32::try_from(number).ok());
    match number.filter(|&number| number > 0) {
        Some(count) => Ok(Rate { count, per }),
        None => Err(d.error(bytes_of(&format!("invalid rate \"{}\"", Verbatim(&text))))),
    }
}
