//! Types and rules shared by all entry points: borrowed slices in, owned buffers out, errors as a
//! status and a message, and a guard that turns a panic into a status.

use std::panic::{catch_unwind, AssertUnwindSafe};

/// `WeftTextStatus` of weft_text.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    Ok = 0,
    Invalid = 1,
    Limit = 2,
    Panic = 3,
    TooMany = 4,
    Cancelled = 5,
}

/// An error on its way to the caller.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure {
            status: Status::Invalid,
            message: message.into(),
        }
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Failure {
            status: Status::Limit,
            message: message.into(),
        }
    }
}

pub type Outcome<T> = Result<T, Failure>;

/// `WeftSlice` of weft_text.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    /// Lives as long as `text`.
    pub fn of(text: &str) -> Slice {
        Slice {
            data: text.as_ptr(),
            size: text.len(),
        }
    }

    /// # Safety
    /// `data` must be valid for `size` bytes as long as the result is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { borrow(self.data, self.size) }
    }

    /// As `bytes`; `what` names the text in the error.
    ///
    /// # Safety
    /// As `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Outcome<&'a str> {
        // SAFETY: the caller's promise.
        std::str::from_utf8(unsafe { self.bytes() }).map_err(|error| {
            Failure::invalid(format!(
                "{what} is not valid UTF-8 at byte {}",
                error.valid_up_to()
            ))
        })
    }
}

/// A C array as a slice; null is an empty one.
///
/// # Safety
/// `data` must be null or valid for `size` values as long as the result is used.
pub unsafe fn borrow<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: not null, and the caller promises the length.
    unsafe { std::slice::from_raw_parts(data, size) }
}

/// Hands a vector to the caller as (pointer, length); `take_back` frees it.
pub fn give<T>(values: Vec<T>) -> (*mut T, usize) {
    let values = values.into_boxed_slice();
    let size = values.len();
    (Box::into_raw(values).cast::<T>(), size)
}

/// # Safety
/// `data` and `size` must come from one `give` and must not be used again.
pub unsafe fn take_back<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        // SAFETY: made by `give` from a boxed slice of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)) });
    }
}

/// `WeftText` of weft_text.h.
#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

impl Text {
    pub fn new(text: String) -> Self {
        let (data, size) = give(text.into_bytes());
        Text { data, size }
    }
}

/// # Safety
/// `text` must come from this library and must not be used again.
#[no_mangle]
pub unsafe extern "C" fn weft_text_free(text: Text) {
    // SAFETY: made by Text::new.
    unsafe { take_back(text.data, text.size) }
}

/// Runs `body`, stores its value in `out` or its message in `error`, and catches panics.
///
/// # Safety
/// `out` and `error` must be valid for writing; what they hold is overwritten, not dropped.
pub unsafe fn guard<T>(out: *mut T, error: *mut Text, body: impl FnOnce() -> Outcome<T>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            // SAFETY: the caller's promise.
            unsafe { out.write(value) };
            return Status::Ok;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|text| text.to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no reason was given".to_string());
            Failure {
                status: Status::Panic,
                message: what,
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { error.write(Text::new(failure.message)) };
    failure.status
}
