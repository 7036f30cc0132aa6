//! The list of modules. Within a phase they run in this order, and header filters likewise: adding a
//! module is one line here.

use clearway_http::{Module, POSTPONE};
use clearway_modules::gzip::{GZIP, acceptance::GZIP_ACCEPTANCE};
use clearway_modules::{
    access, access_log, auth_basic, autoindex, dav, files, index, limit_conn, limit_req, random_index,
    realpath, static_files, try_files,
};
use clearway_modules::{addition, auth_request, mirror, ssi};
use clearway_modules::{browser, referer, secure_link, userid};
use clearway_modules::{charset, empty_gif, geo, headers, map, realip, rewrite, split_clients};
use clearway_modules::{disable_symlinks, not_modified, open_file_cache, range_filter, ssl};
use clearway_modules::{flv, mp4};
use clearway_modules::{gunzip, gzip_static, status, stub_status, sub_filter};

/// All modules that this server is built with.
pub(crate) const MODULES: &[&Module] = &[
    &files::FILES,
    &disable_symlinks::DISABLE_SYMLINKS,
    &open_file_cache::OPEN_FILE_CACHE,
    // Before all filters that change a response, as what it judges is the response as it was made.
    &not_modified::NOT_MODIFIED,
    &ssl::SSL,
    // Before all that asks who the client is.
    &realip::REALIP,
    // Finds what variables may ask for, so it comes before all that evaluate them.
    &realpath::REALPATH,
    &rewrite::REWRITE,
    &map::MAP,
    &geo::GEO,
    &split_clients::SPLIT_CLIENTS,
    &headers::HEADERS,
    &userid::USERID,
    &referer::REFERER,
    &secure_link::SECURE_LINK,
    &browser::BROWSER,
    // Before all filters that look at the bytes of a body.
    &gunzip::GUNZIP,
    &addition::ADDITION,
    &sub_filter::SUB_FILTER,
    &charset::CHARSET,
    // Bodies of subrequests come in behind it.
    &ssi::SSI,
    &POSTPONE,
    &GZIP_ACCEPTANCE,
    &GZIP,
    &limit_req::LIMIT_REQ,
    &limit_conn::LIMIT_CONN,
    &access::ACCESS,
    &auth_basic::AUTH_BASIC,
    // Behind all that asks the client itself.
    &auth_request::AUTH_REQUEST,
    &try_files::TRY_FILES,
    &mirror::MIRROR,
    // Its locations are answered before files are looked for.
    #[cfg(feature = "testing")]
    &clearway_modules::testing::TESTING,
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
