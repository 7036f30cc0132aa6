//! `proxy_cache_valid`: by status, how long responses may be used whose header lines do not say it.

/// Statuses and times in the order of the configuration; the first that fits is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// A status, or `None` for `any`, and seconds.
    times: Vec<(Option<u16>, i64)>,
}

/// The statuses of a `proxy_cache_valid TIME` without a status.
const WITHOUT_STATUS: [u16; 3] = [200, 301, 302];

impl Validity {
    /// `proxy_cache_valid STATUS… TIME`: `None` stands for `any`; no status at all for 200, 301 and 302.
    pub fn add(&mut self, statuses: &[Option<u16>], seconds: i64) {
        if statuses.is_empty() {
            self.times.extend(WITHOUT_STATUS.map(|status| (Some(status), seconds)));
        } else {
            self.times.extend(statuses.iter().map(|&status| (status, seconds)));
        }
    }

    /// How long responses with this status may be used, seconds; 0: they are not stored.
    #[must_use]
    pub fn seconds(&self, status: u16) -> i64 {
        let fits = |of: Option<u16>| of.is_none_or(|of| of == status);
        self.times.iter().find(|&&(of, _)| fits(of)).map_or(0, |&(_, seconds)| seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_that_fits_rules() {
        let mut valid = Validity::default();
        valid.add(&[], 600);
        valid.add(&[Some(404), Some(302)], 60);
        valid.add(&[None], 1);
        valid.add(&[Some(500)], 5);
        let seconds = [200, 301, 302, 404, 500].map(|status| valid.seconds(status));
        assert_eq!(seconds, [600, 600, 600, 60, 1]);
        assert_eq!(Validity::default().seconds(200), 0);
    }
}
