//! From the tree of a configuration to a snapshot: directive handlers fill drafts of servers and
//! locations, then levels are merged, variables settled, names and phases put into tables. Runs at
//! boot or reload, off the loops.
//!
//! Every `http`, `server` and `location` block has a draft. An enclosing block's draft comes before
//! those of the blocks in it, so merging in order merges from the outside in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Sink, bytes_of};
use clearway_conf::{Block, Body, Contexts, Directive, Error, Pos, Scope, Spec, Table};
use clearway_log::{Progress, UtcOffset};
use clearway_net::bind;

use crate::core::{CORE_CONF, CORE_SERVER, CoreLocation, CoreServer, LocationForm, ROOT, Root, RootKind};
use crate::engine::Engine;
use crate::hash_sizes::{self, HASHES};
use crate::ids::{LocationId, ServerId};
use crate::levels::{Conf, ConfKey, DraftConfs, Drafts, Level, Nesting};
use crate::listen::{ListenOptions, Listens, NameTables, Socket, Ssl};
use crate::locations::{self, AutoRedirect, LocationName};
use crate::module::{Module, Role, context};
use crate::phases::{self, Enabling, ListKey, PhaseList};
use crate::product::{self, Product};
use crate::regex::{MATCH_STEPS_MAX, Regex};
use crate::sending::Sending;
use crate::server_names::ServerName;
use crate::services::Services;
use crate::setting::Setting;
use crate::snapshot::{Filters, Location, Server, Snapshot};
use crate::variables::{Keep, Target, Value, VariableId, VariableNames, VariableSpec};

/// Opens what an `error_log` names; supplied by the owner of the logs.
pub type OpenErrorLog = dyn Fn(&Directive) -> Result<Arc<dyn Sink>, Error>;

/// The environment in which a configuration is loaded.
pub struct Environment {
    /// Where relative paths of files begin; ends in a slash.
    pub prefix: PathBuf,
    /// The machine's name (`$hostname`).
    pub hostname: Bytes,
    /// For local times.
    pub utc_offset: UtcOffset,
    /// How far logged lines are written.
    pub log_progress: Progress,
    /// Where errors go that no `error_log` in `http` takes.
    pub error_log: Arc<dyn Sink>,
    /// Handles `error_log` in `http` and below.
    pub open_error_log: Box<OpenErrorLog>,
    /// The port of a server without `listen`: 80, or 8000 without root.
    pub default_port: u16,
    /// Services of the crates above for modules: pools, the log writer.
    pub services: Services,
}

/// Loads configurations with a fixed list of modules.
pub struct HttpLoader<E: Engine> {
    modules: Vec<&'static Module<E>>,
    table: Table<Load<E>>,
}

impl<E: Engine> HttpLoader<E> {
    /// With the directives of these modules, the engine's own first.
    pub fn new(modules: Vec<&'static Module<E>>) -> Self {
        let tables: Vec<&'static [Spec<Load<E>>]> = modules.iter().map(|module| module.directives).collect();
        Self { table: Table::new(&tables), modules }
    }

    /// Makes the directives of another table known, as such that are not allowed in `http`.
    #[must_use]
    pub fn with_names_of<D: 'static>(self, other: &Table<D>) -> Self {
        Self { table: self.table.with_names_of(other), ..self }
    }

    /// All directives that may stand in `http` and below.
    pub fn table(&self) -> &Table<Load<E>> {
        &self.table
    }

    /// The modules, the engine's own part first; for the reference.
    pub fn modules(&self) -> &[&'static Module<E>] {
        &self.modules
    }

    /// Executes an `http` block. It is taken, as what it was is not needed any more when the servers are
    /// built, which takes as much memory again.
    ///
    /// # Errors
    /// The first mistake in it, in nginx's words.
    pub fn load(
        &self,
        http: Directive,
        environment: Environment,
        warnings: &mut Vec<Error>,
    ) -> Result<Snapshot<E>, Error> {
        let mut load = self.execute(http, environment, warnings)?;
        let settled = load.settle(&self.modules, warnings)?;
        load.freeze(&self.modules, settled)
    }

    /// Finds out whether an `http` block can be loaded, and what to listen on; for a process that does not
    /// run it.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn check(
        &self,
        http: Directive,
        environment: Environment,
        warnings: &mut Vec<Error>,
    ) -> Result<Checked<E>, Error> {
        let mut load = self.execute(http, environment, warnings)?;
        let settled = load.settle(&self.modules, warnings)?;
        std::mem::take(&mut load.variables).finish(&load.specs)?;
        let requests = settled.sockets.iter().map(Socket::request).collect();
        Ok(Checked { requests, remains: Remains { _load: load, _settled: settled } })
    }

    fn execute(
        &self,
        http: Directive,
        environment: Environment,
        warnings: &mut Vec<Error>,
    ) -> Result<Load<E>, Error> {
        let mut load = Load::new(&self.modules, environment);
        if let Body::Block(block) = http.body {
            // It holds for the expressions before it as well.
            load.variables = VariableNames::with_match_limit(find_match_limit(&block));
            self.table.run(&block, context::HTTP, &mut load, warnings)?;
            let close = block.close.clone();
            drop(block);
            load.end = Some(close.clone());
            load.merge();
            load.check_pool_sizes(&close)?;
            load.check_types_hash()?;
        }
        Ok(load)
    }
}

/// An `http` block that can be loaded.
pub struct Checked<E: Engine> {
    /// The addresses to listen on, in the order of a snapshot's sockets.
    pub requests: Vec<bind::Request>,
    /// The objects that were made to find that out.
    pub remains: Remains<E>,
}

/// The objects that a check leaves. To free them takes time if there are thousands of servers: it can be done
/// later, or not at all by a process that is about to end.
pub struct Remains<E: Engine> {
    _load: Load<E>,
    _settled: Settled,
}

/// All that can still be wrong when a configuration was read.
struct Settled {
    trees: Vec<locations::Level<LocationId>>,
    sockets: Vec<Socket>,
}

/// A configuration while its directives are executed.
pub struct Load<E: Engine> {
    environment: Environment,
    /// Names of variables; values with variables are compiled with it.
    pub variables: VariableNames<E>,
    specs: Vec<&'static VariableSpec<E>>,
    pub(crate) drafts: AllDrafts,
    main: DraftConfs,
    /// The first one is `http` itself.
    pub(crate) servers: Vec<ServerDraft>,
    /// The first one is `http` itself.
    pub(crate) locations: Vec<LocationDraft>,
    pub(crate) listens: Listens,
    /// `server_product`.
    pub product: Setting<Bytes>,
    /// The locations whose blocks are being read, outermost first.
    open: Vec<LocationName>,
    /// Whether a module speaks TLS.
    ssl: Ssl,
    /// Warnings of modules from when they finished.
    warnings: Vec<Error>,
    /// Where `http` ends, once all of it was read.
    end: Option<Pos>,
    /// The server that is being read.
    pub(crate) server: usize,
    pub(crate) location: usize,
}

/// The drafts of modules at all places of a level.
pub(crate) struct AllDrafts {
    main: Drafts,
    pub(crate) servers: Drafts,
    pub(crate) locations: Drafts,
}

pub(crate) struct ServerDraft {
    pub(crate) confs: DraftConfs,
    pub(crate) names: Vec<Bytes>,
    pub(crate) base: usize,
    listens: usize,
}

pub(crate) struct LocationDraft {
    pub(crate) parent: usize,
    name: Bytes,
    pub(crate) confs: DraftConfs,
    form: LocationForm,
    nesting: Nesting,
    auto_redirect: AutoRedirect,
    children: locations::Builder<LocationId>,
    pub(crate) pos: Option<Pos>,
}

impl<E: Engine> Load<E> {
    fn new(modules: &[&'static Module<E>], environment: Environment) -> Self {
        let slots: Vec<_> = modules.iter().flat_map(|module| module.confs).copied().collect();
        let root = Bytes::from(path_bytes(&environment.prefix.join("html")));
        let root = Root { kind: RootKind::Root, path: Value::literal(root) };
        let core = CoreLocation {
            error_log: Setting::enclosing(vec![environment.error_log.clone()]),
            ..CoreLocation::default()
        };
        let servers = Drafts::new(Level::Server, &slots);
        let mut locations = Drafts::new(Level::Location, &slots);
        let mut confs = DraftConfs::default();
        *locations.of_mut(&mut confs, &CORE_CONF) = core;
        *locations.of_mut(&mut confs, &ROOT) = Setting::enclosing(root);
        let http = LocationDraft {
            parent: 0,
            name: Bytes::new(),
            confs,
            form: LocationForm::Outside,
            nesting: Nesting::Level,
            auto_redirect: AutoRedirect::Off,
            children: locations::Builder::new(),
            pos: None,
        };
        let server = ServerDraft { confs: DraftConfs::default(), names: Vec::new(), base: 0, listens: 0 };
        Self {
            variables: VariableNames::default(),
            specs: modules.iter().flat_map(|module| module.variables).collect(),
            drafts: AllDrafts { main: Drafts::new(Level::Main, &slots), servers, locations },
            main: DraftConfs::default(),
            environment,
            servers: vec![server],
            locations: vec![http],
            listens: Listens::default(),
            product: Setting::new(Bytes::from_static(product::NAME.as_bytes())),
            open: Vec::new(),
            ssl: Ssl::of(modules),
            warnings: Vec::new(),
            end: None,
            server: 0,
            location: 0,
        }
    }

    /// Whether `listen … ssl` is understood.
    pub fn ssl(&self) -> Ssl {
        self.ssl
    }

    /// Adds a warning of a module that finishes.
    pub fn warn(&mut self, warning: Error) {
        self.warnings.push(warning.with_level(clearway_base::log::Level::Warn));
    }

    /// The environment of the load.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Says what is strange about `http` as a whole: nginx finds it at the end of the block.
    pub fn warn_at_end(&mut self, message: impl Into<Vec<u8>>) {
        let warning = match &self.end {
            Some(end) => Error::new(message, end),
            None => Error::unplaced(message),
        };
        self.warn(warning);
    }

    /// A module's settings for all of `http`.
    pub fn main<T: Conf>(&mut self, key: &ConfKey<T>) -> &mut T {
        self.drafts.main.of_mut(&mut self.main, key)
    }

    /// A module's settings for the server being read, or for `http`.
    pub fn server<T: Conf>(&mut self, key: &ConfKey<T>) -> &mut T {
        self.drafts.servers.of_mut(&mut self.servers[self.server].confs, key)
    }

    /// A module's settings for the location being read, or for the server or `http` around.
    pub fn location<T: Conf>(&mut self, key: &ConfKey<T>) -> &mut T {
        self.drafts.locations.of_mut(&mut self.locations[self.location].confs, key)
    }

    /// A module's settings for every server and location; for `Module::finish`. Those that do not differ
    /// come once.
    pub fn all_locations<T: Conf>(&mut self, key: &'static ConfKey<T>) -> impl Iterator<Item = &mut T> {
        self.drafts.locations.all_but(&self.locations[0].confs, key)
    }

    /// How the location being read is written.
    pub fn location_form(&self) -> LocationForm {
        self.locations[self.location].form
    }

    /// Whether what is being read is the block of an `if` or a `limit_except` in a location.
    pub fn is_unnamed(&self) -> bool {
        self.locations[self.location].nesting != Nesting::Level
    }

    /// The location being read passes requests on: with a name that ends in a slash, the path that lacks
    /// only that slash is redirected to it.
    pub fn redirect_to_slash(&mut self) {
        let location = &mut self.locations[self.location];
        if location.name.ends_with(b"/") {
            location.auto_redirect = AutoRedirect::On;
        }
    }

    /// Name of the location being read, without modifier.
    pub fn location_name(&self) -> &Bytes {
        &self.locations[self.location].name
    }

    /// A path of the configuration, made absolute.
    pub fn full_name(&self, path: &[u8]) -> Vec<u8> {
        if path.first() == Some(&b'/') {
            return path.to_vec();
        }
        [&path_bytes(&self.environment.prefix)[..], path].concat()
    }

    /// The engine's settings of the server being read.
    pub fn core_server(&mut self) -> &mut CoreServer {
        self.server(&CORE_SERVER)
    }

    /// The engine's settings of the location being read.
    pub fn core_location(&mut self) -> &mut CoreLocation {
        self.location(&CORE_CONF)
    }

    /// How responses are sent in the location being read.
    pub fn sending(&mut self) -> &mut Sending {
        &mut self.core_location().sending
    }

    /// The engine's settings of every server.
    pub fn core_servers(&self) -> impl Iterator<Item = &CoreServer> {
        self.servers.iter().skip(1).map(|draft| self.drafts.servers.of(&draft.confs, &CORE_SERVER))
    }

    /// nginx builds a table of types for each server, but only one of those in `http`.
    fn check_types_hash(&self) -> Result<(), Error> {
        let confs = self.servers.iter().skip(1).map(|server| &self.locations[server.base].confs);
        let cores = confs.map(|confs| self.drafts.locations.of(confs, &CORE_CONF)).enumerate();
        let is_built =
            |number, core: &CoreLocation| number == 0 || core.types.is_here() || !core.types.is_set();
        let mut built = cores.filter(|(number, core)| is_built(*number, core));
        built.try_for_each(|(_, core)| core.sending.check_hash_sizes())
    }

    /// Makes variables of the named groups of an expression.
    ///
    /// # Errors
    /// A name that is something else already.
    pub fn bind_names(&mut self, regex: &mut Regex) -> Result<(), String> {
        self.variables.bind(regex, &self.specs)
    }

    /// Whether `define_variable` will take a name.
    ///
    /// # Errors
    /// A name that is something else already, or none.
    pub fn check_variable(&mut self, name: &[u8]) -> Result<(), String> {
        self.variables.check(name, &self.specs)
    }

    /// Gives a variable a meaning of the configuration's own (`map`).
    ///
    /// # Errors
    /// A name that is something else already, or none.
    pub fn define_variable(
        &mut self,
        name: &[u8],
        computed: Arc<E::Computed>,
        keep: Keep,
    ) -> Result<VariableId, String> {
        self.variables.define(name, computed, keep, &self.specs)
    }

    /// The target of a `set`; if nothing else defines the name, it is `unset` before.
    ///
    /// # Errors
    /// A name that is something else already, or none.
    pub fn variable_to_set(
        &mut self,
        name: &[u8],
        unset: impl FnOnce() -> Arc<E::Computed>,
    ) -> Result<Target<E>, String> {
        self.variables.assign(name, unset, &self.specs)
    }

    /// Adds a name to the server being read.
    pub fn add_server_name(&mut self, name: &Bytes) {
        self.servers[self.server].names.push(name.clone());
    }

    /// Adds an address to the server being read. What is strange about it.
    pub fn add_listen(
        &mut self,
        address: clearway_net::listen::ListenAddr,
        options: ListenOptions,
    ) -> Result<Option<String>, String> {
        self.servers[self.server].listens += 1;
        self.listens.add(address, options, server_id(self.server))
    }
}

/// Blocks.
impl<E: Engine> Load<E> {
    /// Executes a `server` block.
    pub fn read_server(scope: &mut Scope<'_, Self>, directive: &Directive) -> Result<(), Error> {
        let load = &mut *scope.conf;
        load.location = load.begin_location(0, Bytes::new(), LocationForm::Outside, directive);
        load.server = load.servers.len();
        load.servers.push(ServerDraft {
            confs: DraftConfs::default(),
            names: Vec::new(),
            base: load.location,
            listens: 0,
        });
        scope.block(directive, context::SERVER)?;
        let load = &mut *scope.conf;
        if load.servers[load.server].listens == 0 {
            let any = std::net::SocketAddr::from(([0, 0, 0, 0], load.environment.default_port));
            let address = clearway_net::listen::ListenAddr::Inet(any);
            let added = load.listens.add(address, ListenOptions::NONE(), server_id(load.server));
            added.map_err(|message| directive.error(message))?;
        }
        (load.server, load.location) = (0, 0);
        Ok(())
    }

    /// Executes a `location` block.
    pub fn read_location(scope: &mut Scope<'_, Self>, directive: &Directive) -> Result<(), Error> {
        let args = &directive.args;
        let refuse = |error: locations::LocationError| directive.error(bytes_of(&error.to_string()));
        let mut name = LocationName::parse(&args[0], args.get(1).map(|name| &name[..])).map_err(refuse)?;
        let load = &mut *scope.conf;
        let parent = load.location;
        if let Some(outer) = load.open.last() {
            name.check_inside(outer).map_err(refuse)?;
        }
        let form = match &mut name.kind {
            locations::Kind::Regex(regex) => {
                load.bind_names(regex).map_err(|message| directive.error(message))?;
                LocationForm::Regex
            }
            locations::Kind::Named => LocationForm::Named,
            _ => LocationForm::Path,
        };
        let id = load.begin_location(parent, Bytes::copy_from_slice(&name.name), form, directive);
        load.location = id;
        load.open.push(name);
        scope.block(directive, context::LOCATION)?;
        let load = &mut *scope.conf;
        load.location = parent;
        let name = load.open.pop().expect("pushed before its block was read");
        let LocationDraft { children, auto_redirect, .. } = &mut load.locations[id];
        let (nested, auto_redirect) = (std::mem::take(children), *auto_redirect);
        load.locations[parent].children.add(name, location_id(id), auto_redirect, nested);
        Ok(())
    }
}

/// Blocks that are locations without a name.
impl<E: Engine> Load<E> {
    /// Executes the block of a directive that says what holds under a condition (`if`) in the location
    /// being read, or in the server. What it leaves open it takes from there.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn read_nested(
        scope: &mut Scope<'_, Self>,
        directive: &Directive,
        context: Contexts,
    ) -> Result<LocationId, Error> {
        Self::read_unnamed(scope, directive, context, Nesting::If)
    }

    /// Executes the block of a `limit_except` in the location being read.
    pub fn read_limit_except(
        scope: &mut Scope<'_, Self>,
        directive: &Directive,
    ) -> Result<LocationId, Error> {
        Self::read_unnamed(scope, directive, context::LIMIT_EXCEPT, Nesting::Limited)
    }

    fn read_unnamed(
        scope: &mut Scope<'_, Self>,
        directive: &Directive,
        context: Contexts,
        nesting: Nesting,
    ) -> Result<LocationId, Error> {
        let load = &mut *scope.conf;
        let outer = load.location;
        let (name, form) = (load.locations[outer].name.clone(), load.locations[outer].form);
        let inner = load.begin_location(outer, name, form, directive);
        load.locations[inner].nesting = nesting;
        load.location = inner;
        scope.block(directive, context)?;
        scope.conf.location = outer;
        Ok(location_id(inner))
    }

    /// A module's settings for a nested location that was read.
    pub fn nested<T: Conf>(&mut self, id: LocationId, key: &ConfKey<T>) -> &mut T {
        self.drafts.locations.of_mut(&mut self.locations[id.0 as usize].confs, key)
    }
}

/// The end.
impl<E: Engine> Load<E> {
    fn begin_location(
        &mut self,
        parent: usize,
        name: Bytes,
        form: LocationForm,
        directive: &Directive,
    ) -> usize {
        self.locations.push(LocationDraft {
            parent,
            name,
            confs: DraftConfs::default(),
            form,
            nesting: Nesting::Level,
            auto_redirect: AutoRedirect::Off,
            children: locations::Builder::new(),
            pos: Some(directive.pos.clone()),
        });
        self.locations.len() - 1
    }

    /// Has the modules finish, and puts locations and names into their tables.
    fn settle(
        &mut self,
        modules: &[&'static Module<E>],
        warnings: &mut Vec<Error>,
    ) -> Result<Settled, Error> {
        let finished = modules.iter().filter_map(|module| module.finish).try_for_each(|finish| finish(self));
        // Warnings are reported also before an error.
        warnings.append(&mut self.warnings);
        finished?;
        self.check_variables_hash()?;
        let mut trees = Vec::with_capacity(self.servers.len());
        for server in 1..self.servers.len() {
            trees.push(self.build_tree(server)?);
        }
        let names: Vec<_> = self.servers[1..].iter().map(|server| server.names.clone()).collect();
        let mut tables = NameTables {
            servers: &names,
            hostname: &self.environment.hostname,
            variables: &mut self.variables,
            warnings,
        };
        let sockets = std::mem::take(&mut self.listens).build(&mut tables)?;
        if sockets.iter().any(Socket::has_names) {
            self.check_names_hash()?;
        }
        Ok(Settled { trees, sockets })
    }

    fn freeze(mut self, modules: &[&'static Module<E>], settled: Settled) -> Result<Snapshot<E>, Error> {
        let Settled { trees, sockets } = settled;
        let locations = self.freeze_locations(modules);
        let confs = self.drafts.servers.finish();
        let servers = self.servers.into_iter().skip(1).zip(trees);
        let servers = servers.map(|(draft, tree)| {
            let confs = confs.confs(&draft.confs);
            Server {
                name: shown_name(&draft.names, &self.environment.hostname),
                base: location_id(draft.base),
                tree,
                core: confs.shared(&CORE_SERVER),
                confs,
            }
        });
        Ok(Snapshot {
            servers: servers.collect(),
            locations,
            sockets: sockets.into(),
            variables: self.variables.finish(&self.specs)?,
            main: self.drafts.main.finish().confs(&self.main),
            product: Product::new(&String::from_utf8_lossy(&self.product)),
            hostname: self.environment.hostname,
            utc_offset: self.environment.utc_offset,
            log_progress: self.environment.log_progress,
            prefix: path_bytes(&self.environment.prefix).into(),
        })
    }

    fn merge(&mut self) {
        let Self { servers, locations, drafts, main, .. } = self;
        drafts.main.complete_outermost(main);
        if let Some((http, servers)) = servers.split_first_mut() {
            drafts.servers.complete_outermost(&mut http.confs);
            for server in servers {
                drafts.servers.merge(&mut server.confs, &mut http.confs, Nesting::Level);
            }
        }
        drafts.locations.complete_outermost(&mut locations[0].confs);
        for index in 1..locations.len() {
            let (outer, inner) = locations.split_at_mut(index);
            let (parent, draft) = (&mut outer[inner[0].parent], &mut inner[0]);
            drafts.locations.merge(&mut draft.confs, &mut parent.confs, draft.nesting);
        }
    }

    fn build_tree(&mut self, server: usize) -> Result<locations::Level<LocationId>, Error> {
        let base = self.servers[server].base;
        let children = std::mem::take(&mut self.locations[base].children);
        children.build().map_err(|duplicate| {
            let pos = self.locations[duplicate.id.0 as usize].pos.as_ref();
            match pos {
                Some(pos) => Error::new(bytes_of(&duplicate.message()), pos),
                None => Error::unplaced(bytes_of(&duplicate.message())),
            }
        })
    }

    fn freeze_locations(&mut self, modules: &[&'static Module<E>]) -> Box<[Location<E>]> {
        let drafts = std::mem::take(&mut self.locations);
        let finished =
            std::mem::replace(&mut self.drafts.locations, Drafts::new(Level::Location, &[])).finish();
        let variables = &self.variables;
        let handlers = phases::in_order(modules.iter().flat_map(|module| module.phases));
        let mut lists = Lists::<E>::default();
        let freeze = |draft: LocationDraft| {
            let confs = finished.confs(&draft.confs);
            let core = confs.shared(&CORE_CONF);
            let enabling = Enabling { confs: &confs, core: &core, variables };
            let place = draft.pos.as_ref().map(Pos::to_string).unwrap_or_default();
            let phases = lists.share_phases(PhaseList::build(&handlers, &enabling, place.as_bytes()));
            let filters = lists.share_filters(modules, &enabling);
            Location { name: draft.name, core, confs, phases, filters }
        };
        drafts.into_iter().map(freeze).collect()
    }
}

/// Errors for sizes that have no meaning here.
impl<E: Engine> Load<E> {
    /// Refuses sizes that the table of variables cannot have.
    fn check_variables_hash(&mut self) -> Result<(), Error> {
        let [max_size, bucket_size] = &self.main(&HASHES).variables;
        hash_sizes::check("variables_hash", **max_size, **bucket_size)
    }

    /// Checks the sizes of the hash of server names, if an address has several.
    fn check_names_hash(&mut self) -> Result<(), Error> {
        let [max_size, bucket_size] = &self.main(&HASHES).names;
        hash_sizes::check("server_names_hash", **max_size, **bucket_size)
    }

    /// Refuses sizes that nginx cannot work with together, `close` being the end of `http`.
    fn check_pool_sizes(&self, close: &Pos) -> Result<(), Error> {
        let is_too_large =
            |core: &CoreServer| core.large_client_header_buffers.1 < *core.connection_pool_bytes;
        if self.core_servers().any(is_too_large) {
            let message = "the \"large_client_header_buffers\" size must be equal to or greater than \
                           \"connection_pool_size\"";
            return Err(Error::new(message, close));
        }
        Ok(())
    }
}

/// Lists that many locations share.
#[derive(Default)]
struct Lists<E: Engine> {
    phases: HashMap<ListKey, Arc<PhaseList<E>>>,
    filters: HashMap<Vec<u16>, Arc<Filters<E>>>,
}

impl<E: Engine> Lists<E> {
    fn share_phases(&mut self, list: PhaseList<E>) -> Arc<PhaseList<E>> {
        Arc::clone(self.phases.entry(list.key()).or_insert_with(|| Arc::new(list)))
    }

    /// The header filters of a location.
    fn share_filters(
        &mut self,
        modules: &[&'static Module<E>],
        enabling: &Enabling<'_, E>,
    ) -> Arc<Filters<E>> {
        let specs = modules.iter().flat_map(|module| module.filters).zip(0..);
        let enabled = specs.filter(|(spec, _)| (spec.enabled)(enabling)).map(|(_, number)| number);
        let filters = self.filters.entry(enabled.collect());
        Arc::clone(filters.or_insert_with_key(|enabled| Arc::new(chosen_filters(modules, enabled))))
    }
}

/// The header filters of all modules that have these numbers, which are in order.
fn chosen_filters<E: Engine>(modules: &[&'static Module<E>], numbers: &[u16]) -> Filters<E> {
    let specs: Vec<_> = modules.iter().flat_map(|module| module.filters).collect();
    let before = modules.iter().take_while(|module| module.role != Role::Postpone);
    let before: usize = before.map(|module| module.filters.len()).sum();
    Filters {
        enabled: numbers.iter().map(|&number| specs[usize::from(number)].filter).collect(),
        postpone_at: numbers.partition_point(|&number| usize::from(number) < before),
    }
}

/// `pcre_match_limit`, which is looked for before the directives are executed.
pub const MATCH_LIMIT: &str = "pcre_match_limit";

/// Reads the value.
///
/// # Errors
/// No number, or too large a one.
pub fn match_limit(directive: &Directive) -> Result<u64, Error> {
    directive.number_within(0, 1, Some(MATCH_STEPS_MAX))
}

/// The value of `pcre_match_limit` in `http`, if it is valid; its handler complains otherwise.
fn find_match_limit(block: &Block) -> Option<u64> {
    block.directives.iter().find_map(|directive| match &directive.body {
        Body::Included(files) => files.iter().find_map(find_match_limit),
        _ if directive.name == MATCH_LIMIT && directive.args.len() == 1 => match_limit(directive).ok(),
        _ => None,
    })
}

/// The value of `$server_name` for the names of a server.
fn shown_name(names: &[Bytes], hostname: &Bytes) -> Bytes {
    let Some(first) = names.first() else { return Bytes::new() };
    match ServerName::parse(first, hostname) {
        Ok((ServerName::Text(text), _)) => Bytes::copy_from_slice(text.strip_prefix(b".").unwrap_or(&text)),
        // An expression is shown with its tilde.
        _ => first.clone(),
    }
}

/// Drafts begin with that of `http`, which is no server.
pub(crate) fn server_id(draft: usize) -> ServerId {
    ServerId(u32::try_from(draft - 1).expect("a configuration is far smaller than 4 GiB"))
}

pub(crate) fn location_id(draft: usize) -> LocationId {
    LocationId(u32::try_from(draft).expect("a configuration is far smaller than 4 GiB"))
}

pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}
