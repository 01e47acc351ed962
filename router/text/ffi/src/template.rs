//! Chat templates: minijinja set up as transformers sets up jinja2, with bounds on work and output.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::abi::{guard, Failure, Outcome, Slice, Status, Text};
use crate::marks;
use crate::python;
use crate::python_json;
use crate::values;

/// `WeftTemplate` of weft_text.h.
pub struct Handle {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

const NAME: &str = "chat_template";

/// jinja2 extension tags that mark the assistant's part for training; they print nothing. Written
/// as an `if`, so that whitespace control inside the tag keeps its meaning.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        // Behind the whole opening: "{%}" is no tag.
        let Some(close) = rest[open + 2..].find("%}").map(|at| open + 2 + at) else {
            break;
        };
        let inside = &rest[open + 2..close];
        let word = inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str(&rest[..open + 2]);
        match replacement {
            Some(replacement) => out.push_str(&inside.replace(word, replacement)),
            None => out.push_str(inside),
        }
        out.push_str("%}");
        rest = &rest[close + 2..];
    }
    out.push_str(rest);
    out
}

/// The deepest message of an error with its line; the debug information stays out.
fn describe(error: &Error) -> String {
    let what = error
        .detail()
        .map(str::to_string)
        .unwrap_or_else(|| error.kind().to_string());
    match error.line() {
        Some(line) => format!("{what} (line {line} of the chat template)"),
        None => what,
    }
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Local time by C's strftime, which is what Python's uses; of `now` (Unix seconds), 0 = the clock's.
fn strftime(now: u32, format: String) -> Result<String, Error> {
    let format = std::ffi::CString::new(format).map_err(|_| {
        Error::new(
            ErrorKind::InvalidOperation,
            "strftime_now: NUL in the format",
        )
    })?;
    let mut buffer = [0u8; 256];
    // SAFETY: `now` and `parts` are locals; strftime writes at most buffer.len() bytes.
    let written = unsafe {
        let now = match now {
            0 => libc::time(std::ptr::null_mut()),
            fixed => libc::time_t::from(fixed),
        };
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut parts);
        libc::strftime(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            format.as_ptr(),
            &parts,
        )
    };
    Ok(String::from_utf8_lossy(&buffer[..written]).into_owned())
}

fn compile(source: &str, bos_token: &str, eos_token: &str) -> Outcome<Handle> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.map_err(|error| Failure::invalid(error.to_string()))?);
    environment.set_unknown_method_callback(marks::call_method);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", |format| strftime(0, format));
    environment.add_function("cycler", python::cycler);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_filter("tojson", python_json::tojson);
    environment.add_filter("trim", marks::trim);
    environment.add_filter("escape", marks::escape);
    environment.add_filter("e", marks::escape);
    environment.add_filter("length", marks::length);
    environment.add_filter("count", marks::length);
    environment.add_filter("dictsort", python::dictsort);
    environment.add_filter("sort", python::sort);
    environment.add_filter("string", python::string);
    environment.add_filter("int", python::int);
    environment.add_filter("float", python::float);
    environment.add_filter("indent", python::indent);
    environment.set_formatter(python::print);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("number", python::is_number);
    environment
        .add_template_owned(NAME, without_generation_tags(source))
        .map_err(|error| Failure::invalid(describe(&error)))?;
    Ok(Handle {
        environment,
        bos_token: bos_token.to_string(),
        eos_token: eos_token.to_string(),
    })
}

/// # Safety
/// See weft_text.h: slices valid, `out` and `error` writable.
#[no_mangle]
pub unsafe extern "C" fn weft_template_compile(
    source: Slice,
    bos_token: Slice,
    eos_token: Slice,
    out: *mut *mut Handle,
    error: *mut Text,
) -> Status {
    let body = || {
        let handle = unsafe {
            compile(
                source.text("the chat template")?,
                bos_token.text("bos_token")?,
                eos_token.text("eos_token")?,
            )?
        };
        Ok(Box::into_raw(Box::new(handle)))
    };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}

/// # Safety
/// `handle` is null or from this library, and not used again.
#[no_mangle]
pub unsafe extern "C" fn weft_template_free(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: made by Box::into_raw above.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Takes the rendered text up to a limit.
struct Bounded {
    text: Vec<u8>,
    bytes_max: usize,
    full: bool,
}

impl io::Write for &mut Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes_max - self.text.len() {
            self.full = true;
            return Err(io::Error::other("output limit"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn render(handle: &Handle, values: &[u8], limits: &Limits) -> Outcome<Text> {
    let mut variables = values::read(values)?;
    variables.push(("bos_token".to_string(), handle.bos_token.as_str().into()));
    variables.push(("eos_token".to_string(), handle.eos_token.as_str().into()));
    // A clone shares the compiled template; fuel is a property of the environment.
    let mut environment = handle.environment.clone();
    environment.set_fuel(Some(limits.fuel));
    let now = limits.now_unix_s;
    environment.add_function("strftime_now", move |format| strftime(now, format));
    let template = environment
        .get_template(NAME)
        .map_err(|error| Failure::invalid(describe(&error)))?;
    let bytes_max = limits.output_bytes_max;
    let mut out = Bounded {
        text: Vec::new(),
        bytes_max,
        full: false,
    };
    let variables = Value::from_pairs(variables);
    let result = template.render_captured_to(variables, &mut out).map(|_| ());
    match result {
        Ok(()) => {
            let text = String::from_utf8(out.text)
                .map_err(|_| Failure::invalid("the chat template gave invalid UTF-8"))?;
            Ok(Text::new(text))
        }
        Err(_) if out.full => Err(Failure::limit(format!(
            "the chat template gives more than {bytes_max} bytes"
        ))),
        Err(error) if error.kind() == ErrorKind::OutOfFuel => Err(Failure::limit(format!(
            "the chat template takes more than {} instructions",
            limits.fuel
        ))),
        Err(error) => Err(Failure::invalid(describe(&error))),
    }
}

/// `WeftTemplateLimits` of weft_text.h.
#[repr(C)]
pub struct Limits {
    fuel: u64,
    output_bytes_max: usize,
    now_unix_s: u32,
}

/// # Safety
/// See weft_text.h: `handle` from this library, `values` and `limits` valid, `out` and `error`
/// writable.
#[no_mangle]
pub unsafe extern "C" fn weft_template_render(
    handle: *const Handle,
    values: Slice,
    limits: *const Limits,
    out: *mut Text,
    error: *mut Text,
) -> Status {
    let body = || unsafe { render(&*handle, values.bytes(), &*limits) };
    // SAFETY: the caller's promise.
    unsafe { guard(out, error, body) }
}
