//! The words of JSON Schema's `format`: as the compiler knows them, as a pattern of our own, or
//! without effect on the text.

pub enum Format {
    /// The compiler's own name.
    Known(&'static str),
    /// A pattern that the whole string fits.
    Pattern(&'static str),
    /// Says nothing of the characters (OpenAPI's names for numbers and secrets).
    Free,
}

/// RFC 3339's full-date with the months' lengths and leap years, from the year 1000.
macro_rules! date {
    () => {
        concat!(
            r"(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
            r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))",
            r"|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])",
            r"|(?:[2468][048]|[13579][26])00)-02-29)"
        )
    };
}

/// Without leap seconds, which readers of today do not take.
macro_rules! time {
    () => {
        concat!(
            r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?",
            r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
        )
    };
}

const DATE: &str = concat!("^", date!(), "$");
const TIME: &str = concat!("^", time!(), "$");
const DATE_TIME: &str = concat!("^", date!(), "T", time!(), "$");
/// RFC 3986 4.1: a URI, or a relative reference whose first part has no colon.
const URI_REFERENCE: &str = concat!(
    r"^(?:[a-zA-Z][a-zA-Z0-9+.\-]*:)?(?:[a-zA-Z0-9\-._~!$&'()*+,;=@/]|%[0-9a-fA-F]{2})*",
    r"(?:\?(?:[a-zA-Z0-9\-._~!$&'()*+,;=:@/?]|%[0-9a-fA-F]{2})*)?",
    r"(?:#(?:[a-zA-Z0-9\-._~!$&'()*+,;=:@/?]|%[0-9a-fA-F]{2})*)?$"
);
/// RFC 6901.
const JSON_POINTER: &str = r"^(?:/(?:[^~/]|~[01])*)*$";
const RELATIVE_JSON_POINTER: &str = r"^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$";
/// RFC 4648 4.
const BASE64: &str = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";

pub fn format_of(name: &str) -> Option<Format> {
    Some(match name {
        "date" => Format::Pattern(DATE),
        "time" => Format::Pattern(TIME),
        "date-time" => Format::Pattern(DATE_TIME),
        "duration" => Format::Known("duration"),
        "email" | "idn-email" => Format::Known("email"),
        "hostname" | "idn-hostname" => Format::Known("hostname"),
        "ipv4" => Format::Known("ipv4"),
        "ipv6" => Format::Known("ipv6"),
        "uuid" => Format::Known("uuid"),
        "uri" | "iri" => Format::Known("uri"),
        "uri-reference" | "iri-reference" | "uri-template" => Format::Pattern(URI_REFERENCE),
        "json-pointer" => Format::Pattern(JSON_POINTER),
        "relative-json-pointer" => Format::Pattern(RELATIVE_JSON_POINTER),
        "byte" => Format::Pattern(BASE64),
        "password" | "binary" | "int32" | "int64" | "float" | "double" => Format::Free,
        _ => return None,
    })
}
