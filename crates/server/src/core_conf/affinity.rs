//! `worker_cpu_affinity`: which processors a loop may run on.

use clearway_base::log::Level;
use clearway_conf::{Directive, Error};

/// Processors that a mask can name, as the C library's `CPU_SETSIZE`.
const CPUS_MAX: usize = 1024;

/// The masks of the directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Affinity {
    /// `auto`: the loops in turn take one of these processors each.
    Auto(Vec<usize>),
    /// Processors of the first loop, the second …; the last mask holds for all further loops.
    Masks(Vec<Vec<usize>>),
}

impl Affinity {
    pub(super) fn read(d: &Directive) -> Result<Self, Error> {
        if d.value(0)? != "auto" {
            return Ok(Self::Masks(d.args.iter().map(|text| mask(d, text)).collect::<Result<_, _>>()?));
        }
        match &d.args[1..] {
            [] => Ok(Self::Auto((0..clearway_os::process::processors().min(CPUS_MAX)).collect())),
            [text] => Ok(Self::Auto(mask(d, text)?)),
            _ => Err(d.error("invalid number of arguments in \"worker_cpu_affinity\" directive")),
        }
    }

    /// The processors of a loop; `None`: any.
    pub(super) fn of(&self, loop_index: usize) -> Option<Vec<usize>> {
        match self {
            Self::Auto(cpus) if cpus.is_empty() => None,
            Self::Auto(cpus) => Some(vec![cpus[loop_index % cpus.len()]]),
            Self::Masks(masks) => masks.get(loop_index).or(masks.last()).cloned(),
        }
    }

    /// nginx's warning if masks and loops do not match.
    pub(super) fn warning(&self, worker_processes: Option<u64>) -> Option<Error> {
        let Self::Masks(masks) = self else { return None };
        if masks.len() == 1 || masks.len() as u64 == worker_processes.unwrap_or(1) {
            return None;
        }
        let text = "the number of \"worker_processes\" is not equal to the number of \
                    \"worker_cpu_affinity\" masks, using last mask for remaining worker processes";
        Some(Error::unplaced(text).with_level(Level::Warn))
    }
}

/// Zeros and ones, of which the last is processor 0; spaces may stand between them.
fn mask(d: &Directive, text: &[u8]) -> Result<Vec<usize>, Error> {
    if text.len() > CPUS_MAX {
        let text = format!("\"worker_cpu_affinity\" supports up to {CPUS_MAX} CPUs only");
        return Err(d.error(text));
    }
    let mut cpus = Vec::new();
    for (cpu, digit) in text.iter().rev().filter(|byte| **byte != b' ').enumerate() {
        match digit {
            b'0' => {}
            b'1' => cpus.push(cpu),
            _ => {
                let text =
                    [b"invalid character \"", &[*digit][..], b"\" in \"worker_cpu_affinity\""].concat();
                return Err(d.error(text));
            }
        }
    }
    Ok(cpus)
}
