//! `disable_symlinks`: whether files are found behind symbolic links. What follows from it is in `lookup`.

use clearway_base::log::{Verbatim, bytes_of};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{ConfKey, Level, Load, Module, Setting, Value, View, context};

/// The module.
pub static DISABLE_SYMLINKS: Module =
    Module { name: "disable_symlinks", directives: DIRECTIVES, confs: &[&SYMLINKS_CONF], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "disable_symlinks",
    contexts: context::ALL,
    args: Args::TAKE12,
    syntax: "disable_symlinks off\ndisable_symlinks on | if_not_owner [from=PART]",
    default: "disable_symlinks off;",
    doc: "Whether symbolic links in the path of a file forbid it: with `on` all do, with `if_not_owner` \
          those that have another owner than the file they point to. Links in the PART that the path \
          begins with, such as `$document_root`, are followed.",
    example: "
        location /homes/ {
            root /srv;
            disable_symlinks if_not_owner from=$document_root;
        }",
    see: &["root"],
    handler: read,
}];

static SYMLINKS_CONF: ConfKey<Setting<Disabled>> = ConfKey::new(Level::Location);

/// The parameters of the directive.
#[derive(Clone, Default)]
struct Disabled {
    which: Which,
    from: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Which {
    #[default]
    None,
    All,
    OfOthers,
}

/// The treatment of symbolic links in one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRule {
    /// Links are followed.
    Follow,
    /// A link in the path behind the first bytes forbids the file.
    Never { from: usize },
    /// A link in the path behind the first bytes forbids the file if its owner is not the owner of its
    /// target.
    SameOwner { from: usize },
}

fn read(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (mut which, mut from) = (None, None);
    if scope.conf.location(&SYMLINKS_CONF).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    for argument in &directive.args {
        match &argument[..] {
            b"off" => which = Some(Which::None),
            b"if_not_owner" => which = Some(Which::OfOthers),
            b"on" => which = Some(Which::All),
            text => {
                let Some(text) = text.strip_prefix(b"from=") else {
                    let text = Verbatim(argument);
                    return Err(directive.error(bytes_of(&format!("invalid parameter \"{text}\""))));
                };
                from = Some(scope.conf.variables.compile(&argument.slice_ref(text), &directive.pos)?);
            }
        }
    }
    let Some(which) = which else {
        let message = "\"disable_symlinks\" must have \"off\", \"on\" or \"if_not_owner\" parameter";
        return Err(directive.error(message));
    };
    if directive.args.len() == 2 {
        if from.is_none() {
            let [first, second] = [0, 1].map(|at| Verbatim(&directive.args[at]));
            return Err(directive.error(bytes_of(&format!("duplicate parameters \"{first} {second}\""))));
        }
        if which == Which::None {
            return Err(directive.error("\"from=\" cannot be used with \"off\" parameter"));
        }
    }
    scope.conf.location(&SYMLINKS_CONF).set(Disabled { which, from });
    Ok(())
}

/// The treatment of links in `path`.
pub(crate) fn rule(view: &View<'_, '_>, path: &[u8]) -> LinkRule {
    let Disabled { which, from } = &**view.request.conf(&SYMLINKS_CONF);
    if *which == Which::None {
        return LinkRule::Follow;
    }
    let from = match from {
        None => Some(0),
        Some(from) => checked_from(path, &from.eval(view)),
    };
    match (from, *which) {
        (None, _) | (_, Which::None) => LinkRule::Follow,
        (Some(from), Which::All) => LinkRule::Never { from },
        (Some(from), Which::OfOthers) => LinkRule::SameOwner { from },
    }
}

/// How much of a path is a trusted beginning, in whole names; `None`: all of it.
fn checked_from(path: &[u8], from: &[u8]) -> Option<usize> {
    match path.strip_prefix(from) {
        _ if from.is_empty() => Some(0),
        None => Some(0),
        Some([]) => None,
        Some([b'/', ..]) => Some(from.len()),
        Some(_) if from.ends_with(b"/") => Some(from.len() - 1),
        Some(_) => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trusted_beginning_ends_between_names() {
        for (from, expected) in [
            ("", Some(0)),
            ("/srv", Some(4)),
            ("/srv/", Some(4)),
            ("/srv/www", Some(8)),
            ("/srv/w", Some(0)),
            ("/var", Some(0)),
            ("/srv/www/a", None),
            ("/srv/www/a/b", Some(0)),
        ] {
            assert_eq!(checked_from(b"/srv/www/a", from.as_bytes()), expected, "{from}");
        }
    }
}
