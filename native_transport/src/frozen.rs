//! Python's frozen values as Rust reads them: their attributes, by interned names.

/// Declares the fields that are read of a frozen value of Python, and lists them. It makes a struct that is extracted
/// from the value, each field from the attribute of its name. Fields after `besides` are encoded elsewhere.
///
/// The caller compares the list with the fields that the value has (`coordinator_server/compiled.py`). Otherwise a
/// field that is new in Python, and unknown here, would be lost.
macro_rules! frozen {
    (
        $(#[$docs:meta])*
        $name:ident $(<$life:lifetime>)? { $($field:ident: $kind:ty),* $(,)? } $(besides { $($other:ident),* })?
    ) => {
        $(#[$docs])*
        #[derive(pyo3::FromPyObject)]
        pub struct $name $(<$life>)? { $($field: $kind),* }

        impl $(<$life>)? $name $(<$life>)? {
            /// The value's class in Python, and the exact fields that it must have.
            pub const KNOWN: (&'static str, &'static [&'static str]) =
                (stringify!($name), &[$(stringify!($field),)* $($(stringify!($other)),*)?]);
        }
    };
}

pub(crate) use frozen;
