//! Enums whose variants are words on the command line.

/// Declares an enum with a word for each variant, which is used on the command line, in reports,
/// and in messages between a parent process and its children.
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
            #[allow(dead_code, reason = "not all choices are printed")]
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(format!(
                        concat!("{:?} is not a ", $what, ": choose {}"),
                        text,
                        [$($word),+].join(", ")
                    )),
                }
            }
        }
    };
}

pub(crate) use words;
