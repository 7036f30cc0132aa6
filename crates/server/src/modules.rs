//! The list of modules. Within a phase they run in this order, and header filters likewise: adding a
//! module is one line here.

use clearway_http::{Module, POSTPONE};
use clearway_lua::{LUA, LUA_BALANCER, LUA_EARLY, LUA_FILTER, LUA_NET, SET_MISC};
use clearway_modules::access_control::{
    access, auth_basic, auth_request, limit_conn, limit_req, realip, referer, secure_link,
};
use clearway_modules::content::{
    autoindex, dav, disable_symlinks, echo, empty_gif, files, flv, gzip_static, index, mp4, open_file_cache,
    random_index, realpath, static_files, status, stub_status, try_files,
};
use clearway_modules::filters::gzip::{GZIP, acceptance::GZIP_ACCEPTANCE};
use clearway_modules::filters::{
    addition, charset, gunzip, headers, headers_more, not_modified, range_filter, slice, ssi, sub_filter,
};
use clearway_modules::variables::{browser, geo, map, split_clients, userid};
use clearway_modules::{access_log, mirror, rewrite};
use clearway_plugin::PLUGIN;
use clearway_proxy::api::API_MODULE;
use clearway_proxy::directives::fastcgi::FASTCGI_MODULE;
use clearway_proxy::directives::health::HEALTH_MODULE;
use clearway_proxy::directives::memc::MEMC_MODULE;
use clearway_proxy::directives::memcached::MEMCACHED_MODULE;
use clearway_proxy::directives::proxy::PROXY_MODULE;
use clearway_proxy::directives::scgi::SCGI_MODULE;
use clearway_proxy::directives::tunnel::TUNNEL_MODULE;
use clearway_proxy::directives::uwsgi::UWSGI_MODULE;
use clearway_proxy::upstreams::{UPSTREAM, balancers, keepalive, resolver, sticky};

/// All modules that this server is built with.
pub(crate) const MODULES: &[&Module] = &[
    &files::FILES,
    &disable_symlinks::DISABLE_SYMLINKS,
    &open_file_cache::OPEN_FILE_CACHE,
    // Before all that evaluates variables, and before all filters.
    &slice::SLICE,
    // Before all filters that change a response, as what it judges is the response as it was made.
    &not_modified::NOT_MODIFIED,
    #[cfg(feature = "tls")]
    &clearway_modules::ssl::SSL,
    &clearway_modules::http2::HTTP2,
    &resolver::RESOLVER,
    &UPSTREAM,
    &balancers::BALANCERS,
    &keepalive::KEEPALIVE,
    &sticky::STICKY,
    // Before all modules that ask for the client's address.
    &realip::REALIP,
    // Finds what variables may ask for, so it comes before all that evaluate them.
    &realpath::REALPATH,
    &LUA_EARLY,
    &LUA_NET,
    &LUA_BALANCER,
    #[cfg(feature = "tls")]
    &clearway_lua::LUA_TLS,
    #[cfg(feature = "tls")]
    &clearway_lua::LUA_HANDSHAKE,
    #[cfg(feature = "tls")]
    &clearway_lua::LUA_UPSTREAM_HANDSHAKE,
    #[cfg(feature = "tls")]
    &clearway_lua::LUA_UPSTREAM_VERIFY,
    &rewrite::REWRITE,
    &SET_MISC,
    &map::MAP,
    &geo::GEO,
    &split_clients::SPLIT_CLIENTS,
    // Before those that add lines to heads.
    &LUA_FILTER,
    &headers::HEADERS,
    &userid::USERID,
    &referer::REFERER,
    &secure_link::SECURE_LINK,
    &browser::BROWSER,
    // Before all filters that look at the bytes of a body.
    &gunzip::GUNZIP,
    &headers_more::HEADERS_MORE,
    &addition::ADDITION,
    &sub_filter::SUB_FILTER,
    &charset::CHARSET,
    // Bodies of subrequests come in behind it.
    &ssi::SSI,
    &echo::ECHO,
    &POSTPONE,
    &GZIP_ACCEPTANCE,
    &GZIP,
    &limit_req::LIMIT_REQ,
    &limit_conn::LIMIT_CONN,
    &access::ACCESS,
    &auth_basic::AUTH_BASIC,
    // Behind all that asks the client itself.
    &auth_request::AUTH_REQUEST,
    // Likewise; its locations are answered before files are looked for.
    &PLUGIN,
    // Behind the rewrite and access modules; requests are passed on behind it.
    &LUA,
    &try_files::TRY_FILES,
    &mirror::MIRROR,
    // Its locations are answered before files are looked for.
    #[cfg(feature = "testing")]
    &clearway_modules::testing::TESTING,
    // Its locations are those of `status`.
    &API_MODULE,
    &PROXY_MODULE,
    &FASTCGI_MODULE,
    &UWSGI_MODULE,
    &SCGI_MODULE,
    &MEMCACHED_MODULE,
    &MEMC_MODULE,
    &TUNNEL_MODULE,
    #[cfg(feature = "tls")]
    &clearway_proxy::directives::tls::PROXY_TLS,
    #[cfg(feature = "tls")]
    &clearway_proxy::directives::tls::UWSGI_TLS,
    // Behind these, since it asks where requests go, and how.
    &HEALTH_MODULE,
    &empty_gif::EMPTY_GIF,
    &flv::FLV,
    &mp4::MP4,
    &stub_status::STUB_STATUS,
    &status::STATUS,
    &random_index::RANDOM_INDEX,
    &index::INDEX,
    &autoindex::AUTOINDEX,
    &dav::DAV,
    &gzip_static::GZIP_STATIC,
    &static_files::STATIC_FILES,
    // Behind all filters that change a response, as it cuts what comes out.
    &range_filter::RANGE_FILTER,
    &access_log::ACCESS_LOG,
];
