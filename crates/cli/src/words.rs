//! Enums whose variants are words on the command line.

/// Declares an enum with a word for each variant, used on the command line, in reports, and in
/// messages between a parent process and its children.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident ($what:literal) {
        $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// The word of this variant.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let all = [$($name::$variant),+];
                all.into_iter().find(|choice| choice.word() == text).ok_or_else(|| {
                    let words = all.map(Self::word).join(", ");
                    format!(concat!("{:?} is not a ", $what, ": choose {}"), text, words)
                })
            }
        }
    };
}
