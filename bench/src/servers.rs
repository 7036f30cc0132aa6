//! The servers that are measured and the configurations they get.

use std::net::SocketAddr;

use clearway_testkit::process::{Pid, family};
use clearway_testkit::{Address, Binary, Product, Server, Setup};

/// Where Debian puts the modules that the Lua server needs.
const MODULES: &str = "/usr/lib/nginx/modules";

/// `NAME=PATH`.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) binary: Binary,
}

/// The servers named on the command line, or nginx and Clearway.
pub(crate) fn named(words: &[String]) -> Result<Vec<Named>, String> {
    let parse = |word: &String| {
        let (name, path) = word.split_once('=').ok_or_else(|| format!("{word}: NAME=PATH is expected"))?;
        Ok(Named { name: name.to_owned(), binary: Binary::at(path) })
    };
    if words.is_empty() {
        let nginx = Named { name: "nginx".to_owned(), binary: Binary::oracle() };
        let ours = Named { name: "clearway".to_owned(), binary: Binary::under_test() };
        return Ok(vec![nginx, ours]);
    }
    words.iter().map(parse).collect()
}

/// Everything but the locations: one address, no access log, connections that never end.
pub(crate) fn config(loops: usize, main: &str, locations: &str) -> String {
    config_with(loops, main, "", locations)
}

/// The same with something beside the server.
pub(crate) fn config_with(loops: usize, main: &str, http: &str, locations: &str) -> String {
    format!(
        "{main}\ndaemon off;\nuser root;\nworker_processes {loops};\npid nginx.pid;\n\
         error_log logs/error.log error;\n\
         events {{ worker_connections 19000; accept_mutex off; }}\n\
         http {{ %%TEMP%%\naccess_log off;\nkeepalive_timeout 300s;\nkeepalive_requests 1000000000;\n{http}\n\
         server {{ listen 127.0.0.1:%%PORT%% backlog=4096;\n\
         location /cheap {{ return 200 \"hello, world\\n\"; }}\n{locations}\n}} }}\n"
    )
}

/// Locations that hold their thread for so many milliseconds, in the words of the product.
pub(crate) fn blockers(product: Product, spin: &str, sleep: &str, milliseconds: u32) -> String {
    match product {
        Product::Clearway => format!(
            "location {spin} {{ testing_spin {milliseconds}ms; }}\n\
             location {sleep} {{ testing_sleep {milliseconds}ms; }}\n"
        ),
        Product::Nginx => format!(
            "location {spin} {{ content_by_lua_block {{\n\
             local till = os.clock() + {milliseconds} / 1000\n\
             while os.clock() < till do end\nngx.say(\"done\") }} }}\n\
             location {sleep} {{ content_by_lua_block {{\nlocal ffi = require \"ffi\"\n\
             pcall(ffi.cdef, \"int usleep(unsigned int us);\")\n\
             ffi.C.usleep({milliseconds} * 1000)\nngx.say(\"done\") }} }}\n"
        ),
    }
}

/// What an nginx needs before it speaks Lua.
pub(crate) fn lua_modules() -> String {
    let load = |name: &str| format!("load_module {MODULES}/{name}_module.so;\n");
    load("ndk_http") + &load("ngx_http_lua")
}

/// The user that a server runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The user that runs this program.
    Same,
    /// 65534, without any privilege.
    Nobody,
}

pub(crate) fn start(binary: &Binary, config: &str, user: User, cores: Option<&str>) -> Server {
    let mut setup = Setup::new(binary.clone(), config);
    if let Some(cores) = cores {
        setup = setup.through(&["taskset", "-c", cores]);
    }
    if user == User::Nobody {
        setup = setup.as_nobody();
    }
    setup.start()
}

pub(crate) fn socket_address(server: &Server) -> SocketAddr {
    match server.address() {
        Address::Tcp(address) => address,
        Address::Unix(path) => panic!("{}: not a TCP address", path.display()),
    }
}

/// Sums something over all processes of a server.
pub(crate) fn total<T: std::iter::Sum>(server: &Server, of: impl Fn(Pid) -> T) -> T {
    family(server.pid()).into_iter().map(of).sum()
}
