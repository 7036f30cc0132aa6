//! The directives of the echo module, and how they are read.

use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{Load, context, set};

use super::{Arguments, Command, ECHO_CONF, LineEnd, Verb};

const PLACES: Contexts = context::LOCATION.or(context::LOCATION_IF);

/// A command of the content phase.
macro_rules! command {
    ($verb:ident, $name:literal, $args:expr, $syntax:literal, $doc:literal, $example:literal, $see:expr) => {
        Spec {
            name: $name,
            contexts: PLACES,
            args: $args,
            syntax: $syntax,
            default: "",
            doc: $doc,
            example: $example,
            see: $see,
            handler: |scope, directive| add(scope, directive, Verb::$verb),
        }
    };
}

pub(super) static DIRECTIVES: &[Spec<Load>] = &[
    command!(
        Echo,
        "echo",
        Args::ANY,
        "echo [-n] [TEXT …]",
        "Answers with the texts, with spaces between them and a newline behind them, or with `-n` without \
         one. Several such directives are carried out in their order. They may have variables in them; `--` \
         ends the options.",
        "
            location /hello {
                default_type text/plain;
                echo \"Hello, $remote_addr\";
                echo -n no newline;
            }",
        &["echo_duplicate", "echo_status", "return"]
    ),
    command!(
        Duplicate,
        "echo_duplicate",
        Args::TWO_MORE,
        "echo_duplicate COUNT TEXT",
        "Answers with a text so many times, without newlines.",
        "
            location /large {
                echo_duplicate 1000 abc;
            }",
        &["echo"]
    ),
    command!(
        Flush,
        "echo_flush",
        Args::NOARGS,
        "echo_flush",
        "Sends what there is so far.",
        "
            location /slow {
                echo first;
                echo_flush;
                echo_sleep 1;
                echo second;
            }",
        &["echo_sleep"]
    ),
    command!(
        Sleep,
        "echo_sleep",
        Args::TAKE1,
        "echo_sleep SECONDS",
        "Waits so long, with up to three decimal places, before it goes on.",
        "
            location /slow {
                echo_sleep 1.5;
                echo done;
            }",
        &["echo_flush", "echo_blocking_sleep", "echo_reset_timer"]
    ),
    command!(
        Sleep,
        "echo_blocking_sleep",
        Args::TAKE1,
        "echo_blocking_sleep SECONDS",
        "As `echo_sleep`: the client sees no difference, and other requests go on.",
        "
            location /slow {
                echo_blocking_sleep 0.2;
                echo done;
            }",
        &["echo_sleep"]
    ),
    command!(
        ResetTimer,
        "echo_reset_timer",
        Args::NOARGS,
        "echo_reset_timer",
        "Has `$echo_timer_elapsed` count from now on.",
        "
            location /timed {
                echo_reset_timer;
                echo_sleep 0.1;
                echo $echo_timer_elapsed;
            }",
        &["echo_sleep"]
    ),
    command!(
        Location,
        "echo_location",
        Args::TAKE12,
        "echo_location URI [ARGUMENTS]",
        "Puts what the URI answers here, and goes on behind that.",
        "
            location /both {
                echo_location /first;
                echo_location /second a=1;
            }",
        &["echo_location_async", "echo_exec", "add_before_body"]
    ),
    command!(
        LocationAsync,
        "echo_location_async",
        Args::TAKE12,
        "echo_location_async URI [ARGUMENTS]",
        "Puts what the URI answers here, and goes on at once.",
        "
            location /both {
                echo_location_async /first;
                echo_location_async /second;
            }",
        &["echo_location"]
    ),
    command!(
        Subrequest,
        "echo_subrequest",
        Args::TWO_MORE,
        "echo_subrequest METHOD URI [-q ARGUMENTS] [-b BODY | -f FILE]",
        "As `echo_location`, with another method, and with a body of its own: a text, or a file. Without one \
         it has the body of the request. Its variables are its own.",
        "
            location /both {
                echo_subrequest POST /first -q a=1 -b \"hello\";
                echo_subrequest DELETE /second;
            }",
        &["echo_subrequest_async", "echo_location"]
    ),
    command!(
        SubrequestAsync,
        "echo_subrequest_async",
        Args::TWO_MORE,
        "echo_subrequest_async METHOD URI [-q ARGUMENTS] [-b BODY | -f FILE]",
        "As `echo_subrequest`, and goes on at once.",
        "
            location /both {
                echo_subrequest_async PUT /first -b \"hello\";
                echo_subrequest_async GET /second;
            }",
        &["echo_subrequest"]
    ),
    command!(
        RequestBody,
        "echo_request_body",
        Args::NOARGS,
        "echo_request_body",
        "Answers with the body of the request, if it was read.",
        "
            location /mirror {
                echo_read_request_body;
                echo_request_body;
            }",
        &["echo_read_request_body"]
    ),
    command!(
        ReadRequestBody,
        "echo_read_request_body",
        Args::NOARGS,
        "echo_read_request_body",
        "Reads the body of the request to its end before it goes on.",
        "
            location /mirror {
                echo_read_request_body;
                echo_request_body;
            }",
        &["echo_request_body"]
    ),
    command!(
        ForeachSplit,
        "echo_foreach_split",
        Args::TWO_MORE,
        "echo_foreach_split DELIMITER TEXT",
        "Carries out the commands up to `echo_end` for each piece of the text, which is `$echo_it`. Empty \
         pieces are left out.",
        "
            location /each {
                echo_foreach_split ',' $arg_list;
                echo \"item: $echo_it\";
                echo_end;
            }",
        &["echo_end"]
    ),
    command!(
        End,
        "echo_end",
        Args::NOARGS,
        "echo_end",
        "Ends the commands of `echo_foreach_split`.",
        "
            location /each {
                echo_foreach_split ',' $arg_list;
                echo \"item: $echo_it\";
                echo_end;
            }",
        &["echo_foreach_split"]
    ),
    command!(
        AbortParent,
        "echo_abort_parent",
        Args::NOARGS,
        "echo_abort_parent",
        "Nothing that can be carried out, in nginx's module either: the answer is 500.",
        "
            location /never {
                echo_abort_parent;
            }",
        &["echo_exec"]
    ),
    command!(
        Exec,
        "echo_exec",
        Args::TAKE12,
        "echo_exec URI | @NAME [ARGUMENTS]",
        "Answers with what another URI, or a named location, answers.",
        "
            location /old {
                echo_exec /new $args;
            }",
        &["echo_location", "rewrite"]
    ),
    Spec {
        name: "echo_before_body",
        contexts: PLACES,
        args: Args::ANY,
        syntax: "echo_before_body [-n] [TEXT …]",
        default: "",
        doc: "Puts a line, as `echo` makes it, in front of the body of a response, whatever has made it.",
        example: EXAMPLE_OF_AROUND,
        see: &["echo_after_body", "add_before_body"],
        handler: |scope, directive| {
            let line = read(scope, directive)?;
            Arc::make_mut(&mut scope.conf.location(&ECHO_CONF).before).push(line);
            Ok(())
        },
    },
    Spec {
        name: "echo_after_body",
        contexts: PLACES,
        args: Args::ANY,
        syntax: "echo_after_body [-n] [TEXT …]",
        default: "",
        doc: "Puts a line, as `echo` makes it, behind the body of a response, whatever has made it.",
        example: EXAMPLE_OF_AROUND,
        see: &["echo_before_body", "add_after_body"],
        handler: |scope, directive| {
            let line = read(scope, directive)?;
            Arc::make_mut(&mut scope.conf.location(&ECHO_CONF).after).push(line);
            Ok(())
        },
    },
    Spec {
        name: "echo_status",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "echo_status CODE",
        default: "echo_status 200;",
        doc: "The status of what `echo` and its kin answer.",
        example: "
            location /teapot {
                echo_status 418;
                echo short and stout;
            }",
        see: &["echo", "return"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.location(&ECHO_CONF).status, |directive| {
                Ok(directive.number_within(0, 0, Some(999))? as u16)
            })
        },
    },
];

/// The example of `echo_before_body` and `echo_after_body`.
const EXAMPLE_OF_AROUND: &str = "
    location /framed/ {
        echo_before_body \"-- begin --\";
        echo_after_body \"-- end --\";
    }";

fn add(scope: &mut Scope<'_, Load>, directive: &Directive, verb: Verb) -> Result<(), Error> {
    let arguments = read(scope, directive)?;
    Arc::make_mut(&mut scope.conf.location(&ECHO_CONF).commands).push(Command { verb, arguments });
    Ok(())
}

/// Options are what begins with `-` before the first argument that does not, or before `--`.
fn read(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<Arguments, Error> {
    let (mut line, mut values) = (LineEnd::Newline, Vec::new());
    let mut rest: &[Bytes] = &directive.args;
    while let Some((first, behind)) = rest.split_first() {
        if first.len() < 2 || !first.starts_with(b"-") || first.contains(&b'$') {
            break;
        }
        rest = behind;
        if first.starts_with(b"--") {
            break;
        }
        if &first[..] == b"-n" {
            line = LineEnd::None;
        }
    }
    for value in rest {
        values.push(scope.conf.variables.compile(value, &directive.pos)?);
    }
    Ok(Arguments { line, values })
}
