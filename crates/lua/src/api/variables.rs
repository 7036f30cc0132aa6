//! `ngx.var`: variables of the configuration by name, and the groups of the last expression by number.

use clearway_http::Written;
use clearway_luajit::{Call, Fault, Raise, Returns, Value};

use super::request::REQUEST;
use super::room::{Install, put_virtual};
use crate::current::{Scene, allow, scene};

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put_virtual(stack, "var", index, new_index);
    });
    Ok(())
}

fn index(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    if let Value::Number(number) = call.stack.get(2) {
        let group = scene(call, |scene| scene.view().group(number as usize))?;
        // The whole of what has matched has no number.
        call.stack.push((!group.is_empty() && number >= 1.0).then_some(&group[..]));
        return Ok(Returns::Values(1));
    }
    if !matches!(call.stack.get(2), Value::Text(_)) {
        return Err(call.raise("bad variable name"));
    }
    let name = call.text(2)?.to_ascii_lowercase();
    let value = scene(call, |scene| scene.view().variable_named(&name).map(std::borrow::Cow::into_owned))?;
    call.stack.push(value.as_deref());
    Ok(Returns::Values(1))
}

fn new_index(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, REQUEST)?;
    if !matches!(call.stack.get(2), Value::Text(_)) {
        return Err(call.raise("bad variable name"));
    }
    let name = call.text(2)?.to_vec();
    let value = match call.stack.get(3) {
        Value::Nil => None,
        Value::Text(_) | Value::Number(_) => Some(call.text(3)?.to_vec()),
        Value::Boolean(value) => Some(value.to_string().into_bytes()),
        other => {
            let text = format!("bad argument #3 to 'set' (string expected, got {})", other.type_name());
            return Err(call.raise(&*text));
        }
    };
    match scene(call, |scene| write(scene, &name, value.as_deref()))? {
        Ok(()) => Ok(Returns::Values(0)),
        Err(words) => Err(call.raise(&*words)),
    }
}

/// Gives a variable a value.
///
/// # Errors
/// What is said of one that cannot have it.
pub(super) fn write(scene: Scene<'_, '_, '_>, name: &[u8], value: Option<&[u8]>) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    let written = match scene {
        Scene::Handler(exchange) => exchange.request.write_variable(&lower, value),
        other => other.request().keep_variable(&lower, value),
    };
    let name = String::from_utf8_lossy(name);
    match written {
        Written::Kept => Ok(()),
        Written::Unknown => Err(format!(
            "variable \"{name}\" not found for writing; maybe it is a built-in variable that is not \
             changeable or you forgot to use \"set ${name} '';\" in the config file to define it first"
        )),
        Written::Fixed => Err(format!("variable \"{name}\" not changeable")),
    }
}
