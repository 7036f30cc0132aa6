//! Tables of directives, and the walk over a tree that checks it against them and calls their
//! handlers, in nginx's order of checks and in nginx's words.
//!
//! The layers above define the contexts; a table is generic over the configuration that its
//! handlers build. Runs at boot and at reload, off the loops.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, message, printed};
use crate::tree::{Block, Body, Directive};

/// A set of contexts (main, server, location …), of which each layer numbers its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contexts(u32);

impl Contexts {
    /// All contexts, those of other layers included.
    pub const ANY: Self = Self(u32::MAX);

    /// The context with this number, 0 to 31.
    #[must_use]
    pub const fn bit(number: u32) -> Self {
        assert!(number < u32::BITS, "there are 32 contexts");
        Self(1 << number)
    }

    /// Both sets together.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets have a context in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// How many arguments a directive has, and whether a block follows. The names are nginx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args(u16);

#[expect(missing_docs, reason = "the numbers in the names say it")]
impl Args {
    pub const NOARGS: Self = Self(1);
    pub const TAKE1: Self = Self(1 << 1);
    pub const TAKE2: Self = Self(1 << 2);
    pub const TAKE3: Self = Self(1 << 3);
    pub const TAKE4: Self = Self(1 << 4);
    pub const TAKE5: Self = Self(1 << 5);
    pub const TAKE6: Self = Self(1 << 6);
    pub const TAKE7: Self = Self(1 << 7);
    pub const TAKE12: Self = Self::TAKE1.or(Self::TAKE2);
    pub const TAKE13: Self = Self::TAKE1.or(Self::TAKE3);
    pub const TAKE23: Self = Self::TAKE2.or(Self::TAKE3);
    pub const TAKE123: Self = Self::TAKE12.or(Self::TAKE3);
    pub const TAKE1234: Self = Self::TAKE123.or(Self::TAKE4);
    /// A block follows; to be joined with a number of arguments.
    pub const BLOCK: Self = Self(1 << 8);
    /// One argument, `on` or `off`.
    pub const FLAG: Self = Self(1 << 9);
    /// Any number: the handler counts them.
    pub const ANY: Self = Self(1 << 10);
    /// One or more arguments.
    pub const ONE_MORE: Self = Self(1 << 11);
    /// Two or more.
    pub const TWO_MORE: Self = Self(1 << 12);

    /// Allows what either rule allows; joined with [`Args::BLOCK`] a block has to follow.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a block follows.
    #[must_use]
    pub const fn is_block(self) -> bool {
        self.has(Self::BLOCK)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the directive may have so many arguments.
    #[must_use]
    pub fn allow(self, count: usize) -> bool {
        const COUNTED_MAX: usize = 7;
        if self.has(Self::ANY) {
            true
        } else if self.has(Self::FLAG) {
            count == 1
        } else if self.has(Self::ONE_MORE) {
            count >= 1
        } else if self.has(Self::TWO_MORE) {
            count >= 2
        } else {
            count <= COUNTED_MAX && self.has(Self(1 << count))
        }
    }
}

/// One directive of a table; `C` is the configuration that its handler builds.
pub struct Spec<C: 'static> {
    /// Its name.
    pub name: &'static str,
    /// The contexts in which the directive may stand.
    pub contexts: Contexts,
    /// How many arguments it takes, and whether a block follows.
    pub args: Args,
    /// How it is written, without the semicolon: one line per form.
    pub syntax: &'static str,
    /// The default, written as a directive; empty if there is none.
    pub default: &'static str,
    /// Its description, in Markdown.
    pub doc: &'static str,
    /// A piece of a configuration that uses the directive: it can be loaded, and may be indented as a whole.
    /// Empty where the directive has no effect.
    pub example: &'static str,
    /// Directives that a reader of `doc` may want to know as well.
    pub see: &'static [&'static str],
    /// The function that executes it.
    pub handler: Handler<C>,
}

impl<C: 'static> Spec<C> {
    /// The one directive that belongs to the language. Its files have been read with the tree.
    const INCLUDE: &'static Self = &Self {
        name: "include",
        contexts: Contexts::ANY,
        args: Args::TAKE1,
        syntax: "include FILE | MASK",
        default: "",
        doc: "Puts another file, or all files that a mask of the shell's kind (`*`, `?`, `[…]`) matches, in \
              its place. A relative name is looked up in the directory of the configuration file. A mask \
              that matches nothing is no error, a file that does not exist is one; but those that every \
              nginx comes with (`mime.types`, `fastcgi_params`, `fastcgi.conf`, `scgi_params`, \
              `uwsgi_params`) need not be there: where they are not, what is built in stands for them.",
        example: "
            http {
                include sites-enabled/*.conf;
            }",
        see: &["http"],
        handler: |scope, directive| match &directive.body {
            Body::Included(files) => files
                .iter()
                .try_for_each(|file| scope.table.run(file, scope.context, scope.conf, scope.warnings)),
            _ => Ok(()),
        },
    };
}

/// Executes a directive that stands where it may and has the arguments that it may have.
pub type Handler<C> = fn(&mut Scope<'_, C>, &Directive) -> Result<(), Error>;

/// A handler's surroundings: the configuration being built, and the means to execute the directive's block.
pub struct Scope<'a, C: 'static> {
    table: &'a Table<C>,
    /// The configuration that the handlers of this level build.
    pub conf: &'a mut C,
    /// The context in which the directive stands.
    pub context: Contexts,
    /// Warnings, in the order of the text.
    pub warnings: &'a mut Vec<Error>,
}

impl<C: 'static> Scope<'_, C> {
    /// Executes the directives in the block of `directive` in `context`.
    ///
    /// # Errors
    ///
    /// The first error in it.
    pub fn block(&mut self, directive: &Directive, context: Contexts) -> Result<(), Error> {
        let Some(block) = directive.block() else {
            return Ok(());
        };
        self.table.run(block, context, self.conf, self.warnings)
    }

    /// As [`block`](Self::block), but the handlers build another configuration: that of the level below.
    ///
    /// # Errors
    ///
    /// The first error in it.
    pub fn block_into(
        &mut self,
        directive: &Directive,
        context: Contexts,
        conf: &mut C,
    ) -> Result<(), Error> {
        Scope { table: self.table, conf, context: self.context, warnings: self.warnings }
            .block(directive, context)
    }

    /// Keeps a warning for the caller that started the walk.
    pub fn warn(&mut self, warning: Error) {
        self.warnings.push(warning.with_level(clearway_base::log::Level::Warn));
    }

    /// Adds a message with a level of its own; like a warning it does not stop the walk.
    pub fn say(&mut self, message: Error) {
        self.warnings.push(message);
    }
}

/// The directives of all modules together.
pub struct Table<C: 'static> {
    specs: Vec<&'static Spec<C>>,
    /// Positions in `specs`, in their order.
    by_name: HashMap<&'static [u8], Vec<usize>>,
    /// Names that only other tables have: known, but never allowed here.
    elsewhere: HashSet<&'static [u8]>,
}

impl<C: 'static> Table<C> {
    /// Joins the tables of modules, and adds `include`. Where two directives have the same name
    /// the context decides, then the order.
    #[must_use]
    pub fn new(modules: &[&'static [Spec<C>]]) -> Self {
        let mut specs = vec![Spec::INCLUDE];
        specs.extend(modules.iter().copied().flatten());
        let mut by_name: HashMap<&'static [u8], Vec<usize>> = HashMap::new();
        for (index, spec) in specs.iter().enumerate() {
            by_name.entry(spec.name.as_bytes()).or_default().push(index);
        }
        Self { specs, by_name, elsewhere: HashSet::new() }
    }

    /// Makes names of another table known: here they are not allowed, but not unknown.
    #[must_use]
    pub fn with_names_of<D: 'static>(mut self, other: &Table<D>) -> Self {
        self.elsewhere.extend(other.by_name.keys());
        self.elsewhere.extend(&other.elsewhere);
        self
    }

    /// Whether a directive of this name is in this table itself.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name.as_bytes())
    }

    /// All directives, `include` first, then in the order of the modules.
    pub fn specs(&self) -> impl Iterator<Item = &'static Spec<C>> {
        self.specs.iter().copied()
    }

    /// Names that stand twice for one context, which is a mistake in the tables.
    #[must_use]
    pub fn ambiguous_names(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (index, spec) in self.specs.iter().enumerate() {
            let before = self.specs[..index].iter();
            if before.filter(|other| other.name == spec.name).any(|other| other.contexts.meets(spec.contexts))
            {
                names.push(spec.name);
            }
        }
        names
    }

    /// Executes the directives of a file or a block in `context`. Warnings are added to `warnings`.
    ///
    /// # Errors
    ///
    /// The first error in it, in the order in which nginx finds them.
    pub fn run(
        &self,
        block: &Block,
        context: Contexts,
        conf: &mut C,
        warnings: &mut Vec<Error>,
    ) -> Result<(), Error> {
        for directive in &block.directives {
            let spec = self.checked(directive, context)?;
            if let Body::Broken(error) = &directive.body {
                return Err(Error::clone(error));
            }
            let mut scope = Scope { table: self, conf: &mut *conf, context, warnings: &mut *warnings };
            (spec.handler)(&mut scope, directive)?;
        }
        block.end()
    }

    /// Finds the entry for a directive, and checks its form.
    fn checked(&self, directive: &Directive, context: Contexts) -> Result<&'static Spec<C>, Error> {
        let Some(named) = self.by_name.get(&directive.name[..]) else {
            return Err(if self.elsewhere.contains(&directive.name[..]) {
                directive.reject("is not allowed here")
            } else {
                directive.error(message(&[&"unknown directive \"", &printed(&directive.name), &"\""]))
            });
        };
        let here = named.iter().map(|&index| self.specs[index]).find(|spec| spec.contexts.meets(context));
        let spec = here.ok_or_else(|| directive.reject("is not allowed here"))?;
        check_form(directive, spec.args)?;
        Ok(spec)
    }
}

fn check_form(directive: &Directive, args: Args) -> Result<(), Error> {
    let name = printed(&directive.name);
    let problem: [&dyn AsRef<[u8]>; 3] = match (args.is_block(), directive.opens_block()) {
        (false, true) => [&"directive \"", &name, &"\" is not terminated by \";\""],
        (true, false) => [&"directive \"", &name, &"\" has no opening \"{\""],
        _ if args.allow(directive.args.len()) => return Ok(()),
        _ => [&"invalid number of arguments in \"", &name, &"\" directive"],
    };
    Err(directive.error(message(&problem)))
}
