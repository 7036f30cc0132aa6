//! Reads what callgrind has counted (valgrind's manual, "Callgrind Format Specification").

use std::collections::{BTreeMap, HashMap};

/// How many instructions each function took by itself, of the object whose path ends with `object`.
pub(super) fn costs(profile: &str, object: &str) -> BTreeMap<String, u64> {
    let mut names = Names::default();
    let mut out = BTreeMap::new();
    let (mut is_ours, mut function, mut is_call) = (false, String::new(), false);
    for line in profile.lines() {
        if let Some(value) = line.strip_prefix("ob=") {
            is_ours = names.objects.resolve(value).ends_with(object);
        } else if let Some(value) = line.strip_prefix("cob=") {
            names.objects.resolve(value);
        } else if let Some(value) = line.strip_prefix("fn=") {
            function = names.functions.resolve(value);
        } else if let Some(value) = line.strip_prefix("cfn=") {
            names.functions.resolve(value);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            // The line behind a call has the cost of the called function.
            let is_of_callee = std::mem::take(&mut is_call);
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if let Some(cost) = cost.filter(|_| is_ours && !is_of_callee) {
                *out.entry(function.clone()).or_default() += cost;
            }
        }
    }
    out
}

/// Names are written out once: `(7) name`, and `(7)` from then on.
#[derive(Default)]
struct Names {
    objects: Known,
    functions: Known,
}

#[derive(Default)]
struct Known(HashMap<String, String>);

impl Known {
    fn resolve(&mut self, value: &str) -> String {
        let Some((id, name)) = value.split_once(')') else { return value.to_owned() };
        let name = name.trim();
        if name.is_empty() {
            return self.0.get(id).cloned().unwrap_or_default();
        }
        self.0.insert(id.to_owned(), name.to_owned());
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir
ob=(1) /lib/libc.so.6
fn=(1) memcpy
5 1000
ob=(2) /x/release/clearway
fn=(2) serve
+3 7
cob=(1)
cfn=(1)
calls=4 +2
* 999
-1 5
fn=(3) parse
12 30
fn=(2)
14 1
totals: 1043
";

    #[test]
    fn own_costs_of_one_object_are_added() {
        let costs = costs(PROFILE, "/clearway");
        assert_eq!(
            costs.into_iter().collect::<Vec<_>>(),
            [("parse".to_owned(), 30), ("serve".to_owned(), 13)]
        );
    }
}
