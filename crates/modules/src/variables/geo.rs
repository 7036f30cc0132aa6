//! `geo`: a variable whose value depends on an address, that of the client as a rule. Read at load into
//! tables that a request searches on its loop.

mod ranges;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Computed, HeaderName, Keep, Load, Module, Text, VariableId, Verbatim, View, context};
use smallvec::SmallVec;

use crate::cidr::{Cidr, Depth, LowBits, forwarded, parse_ip, parse_ipv4};
use crate::variables::map::variable_name;
use ranges::{Blocks, Clash, Networks, Ranges};

/// The module.
pub static GEO: Module = Module { name: "geo", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "geo",
    contexts: context::HTTP,
    args: Args::BLOCK.or(Args::TAKE12),
    syntax: "geo [$ADDRESS] $VARIABLE { … }",
    default: "",
    doc: "Makes a variable whose value depends on the address of the client, or on one in a variable. Each \
          line of the block has a network and the value for it, of which the smallest one counts; with \
          `ranges` as the first line, ranges of IPv4 addresses (`10.0.0.0-10.0.0.99`). `default` is for all \
          other addresses, `delete` takes a network or range away again, `include` reads lines from a file. \
          With `proxy`, addresses that are trusted, the last one of `X-Forwarded-For` counts, with \
          `proxy_recursive` the last one that is not trusted. `volatile` has the value looked up each time \
          it is asked for.",
    example: "
        geo $country {
            default        ZZ;
            127.0.0.0/24   US;
            192.0.2.0/24   DE;
            2001:db8::/32  NL;
        }",
    see: &["map", "set_real_ip_from"],
    handler: read_geo,
}];

/// A `geo` block.
struct Geo {
    /// The variable with the address; the client's without.
    address: Option<VariableId>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    values: Vec<Bytes>,
    default: Option<u32>,
    proxies: Vec<Cidr>,
    depth: Depth,
}

impl Computed for Geo {
    fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Option<Text<'c>> {
        let value = match self.ip(view).map(|ip| ip.to_canonical()) {
            Some(IpAddr::V4(ip)) => self.v4.find(ip.to_bits()),
            Some(IpAddr::V6(ip)) => self.v6.find(ip.to_bits()),
            // As in nginx, a client without an address has this one.
            None => self.v4.find(u32::MAX),
        };
        let value = value.or(self.default).and_then(|index| self.values.get(index as usize));
        Some(Cow::Borrowed(value.map_or(b"", |value| value)))
    }
}

impl Geo {
    fn ip(&self, view: &View<'_, '_>) -> Option<IpAddr> {
        let request = view.request;
        let ip = match self.address {
            Some(id) => parse_ip(&view.variable(id)?)?,
            None => request.peer().ip()?,
        };
        if self.proxies.is_empty() {
            return Some(ip);
        }
        let lines: SmallVec<[&[u8]; 4]> =
            request.headers_named(HeaderName::new(b"X-Forwarded-For")).collect();
        Some(forwarded(ip, lines.into_iter(), &self.proxies, self.depth))
    }
}

fn read_geo(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let refuse = |message: String| directive.error(message);
    let mut name = variable_name(directive, 0)?;
    let mut address = None;
    if directive.args.len() == 2 {
        if name.is_empty() {
            return Err(directive.error("invalid variable name \"$\""));
        }
        address = Some(scope.conf.variables.id(name));
        name = variable_name(directive, 1)?;
    }
    scope.conf.check_variable(name).map_err(refuse)?;
    let mut draft = Draft::default();
    let read = directive.block().map_or(Ok(()), |block| block.entries(&mut |line| draft.read(line)));
    std::mem::take(&mut draft.warnings).into_iter().for_each(|warning| scope.warn(warning));
    read?;
    let keep = draft.keep;
    let geo = Arc::new(draft.finish(address));
    scope.conf.define_variable(name, geo, keep).map(|_| ()).map_err(refuse)
}

/// A `geo` block while it is read.
struct Draft {
    entries: Entries,
    values: Vec<Bytes>,
    indexes: HashMap<Bytes, u32>,
    proxies: Vec<Cidr>,
    depth: Depth,
    keep: Keep,
    warnings: Vec<Error>,
}

/// The kind of lines with addresses.
enum Entries {
    /// There was none yet.
    Unknown,
    Networks(Networks<u32>, Networks<u128>),
    Ranges(Blocks, Option<u32>),
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            entries: Entries::Unknown,
            values: Vec::new(),
            indexes: HashMap::new(),
            proxies: Vec::new(),
            depth: Depth::Last,
            keep: Keep::Request,
            warnings: Vec::new(),
        }
    }
}

impl Draft {
    fn read(&mut self, line: &Directive) -> Result<(), Error> {
        match (&line.name[..], &line.args[..]) {
            (b"ranges", []) => match self.entries {
                Entries::Networks(..) => {
                    return Err(line
                        .error("the \"ranges\" directive must be the first directive inside \"geo\" block"));
                }
                Entries::Ranges(..) => {}
                Entries::Unknown => self.entries = Entries::Ranges(Blocks::default(), None),
            },
            (b"proxy_recursive", []) => self.depth = Depth::Untrusted,
            (b"volatile", []) => self.keep = Keep::Never,
            (b"proxy", [network]) => {
                let network = self.network(line, network)?;
                self.proxies.push(network);
            }
            (_, [_]) if matches!(self.entries, Entries::Ranges(..)) => self.read_range(line)?,
            (_, [_]) => self.read_network(line)?,
            _ => return Err(line.error("invalid number of the geo parameters")),
        }
        Ok(())
    }

    fn warn(&mut self, line: &Directive, parts: &[&dyn AsRef<[u8]>]) {
        self.warnings.push(line.error(message(parts)));
    }

    /// A network or a range has a new value instead of its old one.
    fn warn_of_duplicate(&mut self, line: &Directive, subject: &str, old: u32) {
        let (old, value) = (self.text(old), &line.args[0]);
        let parts: [&dyn AsRef<[u8]>; 9] = [
            &"duplicate ",
            &subject,
            &" \"",
            &line.name,
            &"\", value: \"",
            value,
            &"\", old value: \"",
            &old,
            &"\"",
        ];
        self.warn(line, &parts);
    }

    /// The number of a value; equal ones are one.
    fn value(&mut self, text: &Bytes) -> u32 {
        let next = u32::try_from(self.values.len()).expect("a configuration is far smaller than 4 GiB");
        *self.indexes.entry(text.clone()).or_insert_with(|| {
            self.values.push(text.clone());
            next
        })
    }

    fn text(&self, value: u32) -> Bytes {
        self.values[value as usize].clone()
    }

    fn network(&mut self, line: &Directive, text: &Bytes) -> Result<Cidr, Error> {
        if text == "255.255.255.255" {
            return Ok(Cidr { ip: IpAddr::from([255; 4]), prefix_bits: 32 });
        }
        let (network, low_bits) =
            Cidr::parse(text).ok_or_else(|| line.error(message(&[&"invalid network \"", text, &"\""])))?;
        if low_bits == LowBits::Ignored {
            self.warn(line, &[&"low address bits of ", text, &" are meaningless"]);
        }
        Ok(network)
    }
}

/// Networks.
impl Draft {
    fn read_network(&mut self, line: &Directive) -> Result<(), Error> {
        if matches!(self.entries, Entries::Unknown) {
            self.entries = Entries::Networks(Networks::default(), Networks::default());
        }
        let argument = &line.args[0];
        match &line.name[..] {
            b"default" => {
                for ip in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
                    self.add_network(line, Cidr { ip, prefix_bits: 0 });
                }
            }
            b"delete" => {
                let network = self.network(line, argument)?;
                if !self.delete_network(network) {
                    self.warn(line, &[&"no network \"", argument, &"\" to delete"]);
                }
            }
            _ => {
                let network = self.network(line, &line.name)?;
                self.add_network(line, network);
            }
        }
        Ok(())
    }

    fn add_network(&mut self, line: &Directive, Cidr { ip, prefix_bits }: Cidr) {
        let value = self.value(&line.args[0]);
        let Entries::Networks(v4, v6) = &mut self.entries else { return };
        let old = match ip {
            IpAddr::V4(ip) => v4.add(ip.to_bits(), prefix_bits, value),
            IpAddr::V6(ip) => v6.add(ip.to_bits(), prefix_bits, value),
        };
        if let Some(old) = old {
            self.warn_of_duplicate(line, "network", old);
        }
    }

    fn delete_network(&mut self, Cidr { ip, prefix_bits }: Cidr) -> bool {
        let Entries::Networks(v4, v6) = &mut self.entries else { return false };
        match ip {
            IpAddr::V4(ip) => v4.delete(ip.to_bits(), prefix_bits),
            IpAddr::V6(ip) => v6.delete(ip.to_bits(), prefix_bits),
        }
    }
}

/// Ranges.
impl Draft {
    fn read_range(&mut self, line: &Directive) -> Result<(), Error> {
        let argument = &line.args[0];
        if line.name == "default" {
            let value = self.value(argument);
            let Entries::Ranges(_, default) = &mut self.entries else { return Ok(()) };
            if let Some(old) = default.replace(value) {
                let old = self.text(old);
                self.warn(
                    line,
                    &[&"duplicate default geo range value: \"", argument, &"\", old value: \"", &old, &"\""],
                );
            }
            return Ok(());
        }
        let deletes = line.name == "delete";
        let text = if deletes { argument } else { &line.name };
        let (start, end) =
            parse_range(text).ok_or_else(|| line.error(message(&[&"invalid range \"", text, &"\""])))?;
        if !deletes {
            return self.add_range(line, start, end);
        }
        let Entries::Ranges(blocks, _) = &mut self.entries else { return Ok(()) };
        if !blocks.delete(start, end) {
            self.warn(line, &[&"no address range \"", text, &"\" to delete"]);
        }
        Ok(())
    }

    fn add_range(&mut self, line: &Directive, start: u32, end: u32) -> Result<(), Error> {
        let value = self.value(&line.args[0]);
        let Entries::Ranges(blocks, _) = &mut self.entries else { return Ok(()) };
        for clash in blocks.add(start, end, value) {
            match clash {
                Clash::Duplicate(old) => self.warn_of_duplicate(line, "range", old),
                Clash::Overlap(start, end) => {
                    let [start, end] = [start, end].map(std::net::Ipv4Addr::from_bits);
                    let range = Verbatim(&line.name);
                    return Err(line.error(format!("range \"{range}\" overlaps \"{start}-{end}\"")));
                }
            }
        }
        Ok(())
    }

    fn finish(self, address: Option<VariableId>) -> Geo {
        let (v4, v6, default) = match self.entries {
            Entries::Unknown => (Networks::default().build(), Networks::default().build(), None),
            Entries::Networks(v4, v6) => (v4.build(), v6.build(), None),
            Entries::Ranges(blocks, default) => {
                let v4 = blocks.build();
                // As in nginx, IPv6 has the value of the last IPv4 address.
                let mut v6 = Networks::default();
                if let Some(value) = v4.find(u32::MAX) {
                    v6.add(0, 0, value);
                }
                (v4, v6.build(), default)
            }
        };
        let Self { values, proxies, depth, .. } = self;
        Geo { address, v4, v6, values, default, proxies, depth }
    }
}

/// First and last address of `FIRST-LAST`.
fn parse_range(text: &[u8]) -> Option<(u32, u32)> {
    let (start, end) = text.split_at(memchr::memchr(b'-', text)?);
    let (start, end) = (parse_ipv4(start)?.to_bits(), parse_ipv4(&end[1..])?.to_bits());
    (start <= end).then_some((start, end))
}
