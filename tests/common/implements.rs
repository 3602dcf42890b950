//! A check of the traits that a type implements.

/// Tells whether a type implements `$bound`. In that case, an inherent constant shadows the
/// constant of the trait `No`.
macro_rules! implements {
    ($type:ty: $($bound:tt)+) => {{
        #[allow(dead_code, reason = "used where the bound does not hold")]
        trait No {
            const IMPLEMENTED: bool = false;
        }
        struct Probe<T>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "used where the bound holds")]
        impl<T: $($bound)+> Probe<T> {
            const IMPLEMENTED: bool = true;
        }
        impl<T> No for Probe<T> {}
        <Probe<$type>>::IMPLEMENTED
    }};
}

pub(crate) use implements;
