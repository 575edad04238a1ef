//! Events and spans for operators, with the feature `tracing`; without cost when the feature is
//! off.

#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;

/// Emits an event with the target `hyades`: `event!(INFO, "text", field = value, ..)`. Values are
/// numbers, truth values and texts. Without the feature `tracing` the values are not evaluated.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! event {
    ($level:ident, $text:literal $(, $field:ident = $value:expr)* $(,)?) => {
        // The thread has further work to do, so must not panic with a subscriber.
        _ = $crate::callback::run(|| {
            $crate::trace::tracing::event!(
                target: "hyades",
                $crate::trace::tracing::Level::$level,
                $($field = $value,)*
                $text
            )
        })
    };
}

/// Emits an event with the target `hyades`: `event!(INFO, "text", field = value, ..)`. Values are
/// numbers, truth values and texts. Without the feature `tracing` the values are not evaluated.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! event {
    ($level:ident, $text:literal $(, $field:ident = $value:expr)* $(,)?) => {{
        // Never called: the values count as used.
        let _ = || {
            $(let _ = &$value;)*
        };
    }};
}

/// Enters a span with the target `hyades` until the value is dropped: `span!(INFO, "name", field =
/// value, ..)`. Without the feature `tracing` the values are not evaluated.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! span {
    ($level:ident, $name:literal $(, $field:ident = $value:expr)* $(,)?) => {
        $crate::trace::tracing::span!(
            target: "hyades",
            $crate::trace::tracing::Level::$level,
            $name
            $(, $field = $value)*
        )
        .entered()
    };
}

/// Enters a span with the target `hyades` until the value is dropped: `span!(INFO, "name", field =
/// value, ..)`. Without the feature `tracing` the values are not evaluated.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! span {
    ($level:ident, $name:literal $(, $field:ident = $value:expr)* $(,)?) => {{
        let _ = || {
            $(let _ = &$value;)*
        };
        $crate::trace::NoSpan
    }};
}

/// The result of [`span!`] without the feature `tracing`.
#[derive(Debug)]
pub struct NoSpan;
