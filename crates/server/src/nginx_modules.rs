//! nginx's modules, and which of them this server has: for `-V`, whose configure arguments tools and test
//! suites read, and for `load_module`. A module is there when all of its listed directives are in the
//! tables that configurations are read with, so this cannot say more than is true. Boot.

use clearway_conf::Table;
use clearway_http::HttpLoader;

use crate::core_conf::{CoreConf, TABLES};
use crate::modules::MODULES;

/// Whether nginx's `configure` builds a module that nobody mentions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// The module is built by default; `--without-…` leaves it out.
    Default,
    /// The module is not built by default; `--with-…` adds it.
    Asked,
    /// The module belongs to another project: `configure` knows it by its directory, which does not exist
    /// here.
    Added,
}

/// Something that `configure` can build or leave out.
struct Part {
    /// The name behind `--with-` and `--without-`; for a module its name without `ngx_`.
    name: &'static str,
    build: Build,
    /// The directives without which it is not what users of nginx know by its name.
    directives: &'static [&'static str],
}

const fn default(name: &'static str, directives: &'static [&'static str]) -> Part {
    Part { name, build: Build::Default, directives }
}

const fn asked(name: &'static str, directives: &'static [&'static str]) -> Part {
    Part { name, build: Build::Asked, directives }
}

const fn added(name: &'static str, directives: &'static [&'static str]) -> Part {
    Part { name, build: Build::Added, directives }
}

/// In the order of `configure --help`.
const PARTS: &[Part] = &[
    asked("threads", &["thread_pool"]),
    asked("http_ssl_module", &["ssl_certificate", "ssl_protocols"]),
    asked("http_v2_module", &["http2"]),
    asked("http_v3_module", &["http3"]),
    asked("http_realip_module", &["set_real_ip_from", "real_ip_header", "real_ip_recursive"]),
    asked("http_addition_module", &["add_before_body", "add_after_body"]),
    asked("http_xslt_module", &["xslt_stylesheet"]),
    asked("http_image_filter_module", &["image_filter"]),
    asked("http_geoip_module", &["geoip_country", "geoip_city"]),
    asked("http_sub_module", &["sub_filter", "sub_filter_once", "sub_filter_types"]),
    asked("http_dav_module", &["dav_methods"]),
    asked("http_flv_module", &["flv"]),
    asked("http_mp4_module", &["mp4"]),
    asked("http_gunzip_module", &["gunzip"]),
    asked("http_gzip_static_module", &["gzip_static"]),
    asked("http_auth_request_module", &["auth_request", "auth_request_set"]),
    asked("http_random_index_module", &["random_index"]),
    asked("http_secure_link_module", &["secure_link", "secure_link_secret"]),
    asked("http_degradation_module", &["degradation"]),
    asked("http_slice_module", &["slice"]),
    asked("http_stub_status_module", &["stub_status"]),
    default("http_charset_module", &["charset", "charset_map"]),
    default("http_gzip_module", &["gzip", "gzip_types", "gzip_comp_level"]),
    default("http_ssi_module", &["ssi", "ssi_types"]),
    default("http_userid_module", &["userid", "userid_name"]),
    default("http_access_module", &["allow", "deny"]),
    default("http_auth_basic_module", &["auth_basic", "auth_basic_user_file"]),
    default("http_mirror_module", &["mirror", "mirror_request_body"]),
    default("http_autoindex_module", &["autoindex", "autoindex_format"]),
    default("http_geo_module", &["geo"]),
    default("http_map_module", &["map"]),
    default("http_split_clients_module", &["split_clients"]),
    default("http_referer_module", &["valid_referers"]),
    default("http_rewrite_module", &["rewrite", "return", "break", "if", "set"]),
    default("http_proxy_module", &["proxy_pass", "proxy_redirect", "proxy_set_header"]),
    default("http_fastcgi_module", &["fastcgi_pass", "fastcgi_param"]),
    default("http_uwsgi_module", &["uwsgi_pass", "uwsgi_param"]),
    default("http_scgi_module", &["scgi_pass", "scgi_param"]),
    default("http_grpc_module", &["grpc_pass"]),
    default("http_tunnel_module", &["tunnel_pass"]),
    default("http_memcached_module", &["memcached_pass"]),
    default("http_limit_conn_module", &["limit_conn_zone", "limit_conn", "limit_conn_dry_run"]),
    default("http_limit_req_module", &["limit_req_zone", "limit_req", "limit_req_dry_run"]),
    default("http_empty_gif_module", &["empty_gif"]),
    default("http_browser_module", &["modern_browser", "ancient_browser"]),
    default("http_upstream_hash_module", &["hash"]),
    default("http_upstream_ip_hash_module", &["ip_hash"]),
    default("http_upstream_least_conn_module", &["least_conn"]),
    default("http_upstream_least_time_module", &["least_time"]),
    default("http_upstream_random_module", &["random"]),
    default("http_upstream_keepalive_module", &["keepalive"]),
    default("http_upstream_zone_module", &["zone"]),
    default("http_upstream_sticky_module", &["sticky"]),
    asked("http_perl_module", &["perl"]),
    default("http-cache", &["proxy_cache", "proxy_cache_path"]),
    asked("mail", &["mail"]),
    asked("stream", &["stream"]),
    asked("pcre-jit", &["pcre_jit"]),
    added("http_echo_module", &["echo", "echo_location", "echo_sleep", "echo_request_body", "echo_exec"]),
    added("http_headers_more_filter_module", &["more_set_headers", "more_clear_headers"]),
    added(NDK, &["set_by_lua_block"]),
    added("http_lua_module", &["content_by_lua_block", "init_by_lua_block", "lua_shared_dict"]),
    added("http_set_misc_module", &["set_unescape_uri", "set_quote_sql_str", "set_hashed_upstream"]),
];

/// The module that Lua and others are built on, which has no directives; its file has this name, without
/// `ngx_`.
const NDK: &str = "ndk_http_module";

/// The parts of nginx that this server has.
pub(crate) struct BuiltIn {
    core: Table<CoreConf>,
    http: HttpLoader,
}

impl BuiltIn {
    pub(crate) fn new() -> Self {
        Self { core: Table::new(TABLES), http: clearway_http::loader(MODULES) }
    }

    fn has(&self, part: &Part) -> bool {
        let known = |name: &&str| self.core.knows(name) || self.http.table().knows(name);
        part.directives.iter().all(known)
    }

    /// Whether the module in a file of this name (`ngx_http_geoip_module.so`) is built in.
    pub(crate) fn has_module(&self, file_name: &[u8]) -> bool {
        let is_file = |part: &&Part| match part.name {
            NDK => file_name == format!("{NDK}.so").as_bytes(),
            "mail" | "stream" => file_name == format!("ngx_{}_module.so", part.name).as_bytes(),
            name => name.ends_with("_module") && file_name == format!("ngx_{name}.so").as_bytes(),
        };
        PARTS.iter().find(is_file).is_some_and(|part| self.has(part))
    }

    /// The differences from nginx's default build: ` --with-…` and ` --without-…`.
    pub(crate) fn configure_arguments(&self) -> String {
        let argument = |part: &Part| match (part.build, self.has(part)) {
            (Build::Asked, true) => Some(format!(" --with-{}", part.name)),
            (Build::Default, false) => Some(format!(" --without-{}", part.name)),
            _ => None,
        };
        PARTS.iter().filter_map(argument).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_there_when_its_directives_are() {
        let built_in = BuiltIn::new();
        let arguments = built_in.configure_arguments();
        let argument = |wanted: &str| arguments.split(' ').any(|argument| argument == wanted);
        assert!(argument("--with-threads") && argument("--with-pcre-jit"), "{arguments}");
        for part in PARTS.iter().filter(|part| part.build == Build::Default) {
            assert_eq!(argument(&format!("--without-{}", part.name)), !built_in.has(part), "{}", part.name);
        }
        for file in ["ndk_http_module.so", "ngx_http_lua_module.so", "ngx_http_echo_module.so"] {
            assert!(built_in.has_module(file.as_bytes()), "{file}");
        }
        assert!(!built_in.has_module(b"ngx_http_no_such_module.so"));
        assert!(!built_in.has_module(b"ngx_threads.so"));
        let part = asked("x", &["root", "user"]);
        assert!(built_in.has(&part));
        assert!(!built_in.has(&asked("x", &["root", "no_such_directive"])));
    }

    #[test]
    fn parts_are_listed_once() {
        let mut names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARTS.len());
    }
}
