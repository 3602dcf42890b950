//! The callbacks of timers. A closure of at most 32 bytes, with at most the alignment of a `u64`,
//! is stored inline. Any other closure is boxed (P4).

#![allow(unsafe_code)]

use std::{
    any::TypeId,
    marker::PhantomData,
    mem::{self, ManuallyDrop, MaybeUninit},
    ptr::NonNull,
};

/// The storage for a closure's captures or for its box: 32 bytes.
type InlineStorage = MaybeUninit<[u64; 4]>;

/// A closure of any type, in storage of fixed size.
///
/// From `new` or `build` on, the storage holds a value of type `vtable.type_of`, until the value is
/// moved out or dropped.
#[repr(C)]
struct Closure {
    storage: InlineStorage,
    vtable: &'static VTable,
    /// Makes the type `!Send`, because the captures need not be `Send`.
    not_send: PhantomData<*const ()>,
}

/// The operations on the stored value. `call` and `drop` take a pointer to the storage.
struct VTable {
    /// Calls the value. The call of a one-shot callback moves the value out of the storage.
    call: unsafe fn(*mut InlineStorage),
    /// `None` if the drop has no effect.
    drop: Option<unsafe fn(*mut InlineStorage)>,
    is_repeatable: bool,
    type_of: fn() -> TypeId,
}

trait CallKind<F> {
    const VTABLE: &'static VTable;
}

enum CallOnce {}
enum CallRepeatedly {}

impl<F: FnOnce() + 'static> CallKind<F> for CallOnce {
    const VTABLE: &'static VTable = &VTable {
        call: call_once::<F>,
        drop: drop_fn_of::<F>(),
        is_repeatable: false,
        type_of: TypeId::of::<F>,
    };
}

impl<F: FnMut() + 'static> CallKind<F> for CallRepeatedly {
    const VTABLE: &'static VTable = &VTable {
        call: call_mut::<F>,
        drop: drop_fn_of::<F>(),
        is_repeatable: true,
        type_of: TypeId::of::<F>,
    };
}

const fn drop_fn_of<F>() -> Option<unsafe fn(*mut InlineStorage)> {
    if mem::needs_drop::<F>() { Some(drop_in_storage::<F>) } else { None }
}

/// # Safety
///
/// `storage` points to storage that holds an `F`, which the call consumes.
unsafe fn call_once<F: FnOnce()>(storage: *mut InlineStorage) {
    // SAFETY: the storage holds an `F`, which this call consumes (caller), at an address aligned
    // for it (`Closure::new`).
    let closure = unsafe { storage.cast::<F>().read() };
    closure();
}

/// # Safety
///
/// `storage` points to storage that holds an `F` and is not used by any other code during the call.
unsafe fn call_mut<F: FnMut()>(storage: *mut InlineStorage) {
    // SAFETY: the storage holds an `F` (caller), at an address aligned for it (`Closure::new`),
    // exclusively (caller).
    let closure = unsafe { &mut *storage.cast::<F>() };
    closure();
}

/// # Safety
///
/// `storage` points to storage that holds an `F`, which the call drops.
unsafe fn drop_in_storage<F>(storage: *mut InlineStorage) {
    // SAFETY: the storage holds an `F`, which this call consumes (caller), at an address aligned
    // for it (`Closure::new`).
    unsafe { storage.cast::<F>().drop_in_place() }
}

impl Closure {
    /// Stores a value, which must fit the storage.
    fn new<F: 'static, K: CallKind<F>>(value: F) -> Self {
        assert!(fits::<F>(), "the caller boxes what does not fit");
        let mut storage = InlineStorage::uninit();
        // SAFETY: an `F` is not larger than the storage and needs no stricter alignment, asserted
        // above.
        unsafe { storage.as_mut_ptr().cast::<F>().write(value) };
        Self { storage, vtable: K::VTABLE, not_send: PhantomData }
    }

    /// Writes a closure to its final address; `value` must fit the storage. A move of a new
    /// `Closure` would read its parts while they are still in the store buffer, which would stall.
    ///
    /// # Safety
    ///
    /// `dest` is valid for writes.
    #[inline]
    unsafe fn build<F: 'static, K: CallKind<F>>(value: F, dest: *mut Self) {
        assert!(fits::<F>(), "the caller boxes what does not fit");
        // SAFETY: `dest` is valid for writes (caller).
        let storage = unsafe { &raw mut (*dest).storage };
        // SAFETY: an `F` is not larger than the storage and needs no stricter alignment, asserted
        // above.
        unsafe { storage.cast::<F>().write(value) };
        // SAFETY: `dest` is valid for writes (caller).
        let vtable = unsafe { &raw mut (*dest).vtable };
        // SAFETY: as above.
        unsafe { vtable.write(K::VTABLE) };
    }
}

impl Closure {
    /// Returns the original closure, unboxed, or `None` if it is not an `F`.
    fn into_closure<F: 'static>(self) -> Option<F> {
        if fits::<F>() {
            self.into_value()
        } else {
            self.into_value::<Box<F>>().map(|boxed| *boxed)
        }
    }

    fn into_value<F: 'static>(self) -> Option<F> {
        if (self.vtable.type_of)() != TypeId::of::<F>() {
            return None;
        }
        let mut closure = ManuallyDrop::new(self);
        // SAFETY: the storage holds a value of type `vtable.type_of`, which is `F`. The value is
        // moved out, and `ManuallyDrop` prevents a second drop.
        Some(unsafe { (&raw mut closure.storage).cast::<F>().read() })
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: the storage holds a value of type `vtable.type_of`, and is not used after the
            // drop.
            unsafe { drop(&raw mut self.storage) }
        }
    }
}

/// A payload that is built at its final address.
///
/// # Safety
///
/// `build` initializes the memory at `dest`.
pub(crate) unsafe trait BuildInPlace<T> {
    /// # Safety
    ///
    /// `dest` is valid for writes.
    unsafe fn build(self, dest: *mut T);
}

/// A payload that is moved to its final address.
#[derive(Debug)]
pub(crate) struct ByValue<T>(pub(crate) T);

// SAFETY: `write` initializes `dest`.
unsafe impl<T> BuildInPlace<T> for ByValue<T> {
    #[inline]
    unsafe fn build(self, dest: *mut T) {
        // SAFETY: `dest` is valid for writes (caller).
        unsafe { dest.write(self.0) }
    }
}

/// The callback of a timer, one-shot or periodic.
#[repr(transparent)]
pub(crate) struct Callback(Closure);

/// A closure that becomes the callback of a one-shot timer.
pub(crate) struct RunOnce<F>(pub(crate) F);

/// A closure that becomes the callback of a periodic timer.
pub(crate) struct RunRepeatedly<F>(pub(crate) F);

// SAFETY: `Closure::build` or `write` initializes `dest`.
unsafe impl<F: FnOnce() + 'static> BuildInPlace<Callback> for RunOnce<F> {
    #[inline]
    unsafe fn build(self, dest: *mut Callback) {
        if fits::<F>() {
            // SAFETY: `dest` is valid for writes (caller).
            let closure = unsafe { &raw mut (*dest).0 };
            // SAFETY: as above.
            unsafe { Closure::build::<F, CallOnce>(self.0, closure) }
        } else {
            // SAFETY: as above.
            unsafe { dest.write(OneShotCallback::boxed(Box::new(self.0)).into()) }
        }
    }
}

// SAFETY: `Closure::build` initializes `dest`.
unsafe impl<F: FnMut() + 'static> BuildInPlace<Callback> for RunRepeatedly<F> {
    unsafe fn build(self, dest: *mut Callback) {
        // SAFETY: `dest` is valid for writes (caller).
        let closure = unsafe { &raw mut (*dest).0 };
        if fits::<F>() {
            // SAFETY: as above.
            unsafe { Closure::build::<F, CallRepeatedly>(self.0, closure) }
        } else {
            // SAFETY: as above.
            unsafe { Closure::build::<Box<F>, CallRepeatedly>(Box::new(self.0), closure) }
        }
    }
}

// SAFETY: `write` initializes `dest`.
unsafe impl BuildInPlace<Callback> for OneShotCallback {
    unsafe fn build(self, dest: *mut Callback) {
        // SAFETY: `dest` is valid for writes (caller).
        unsafe { dest.write(self.into()) }
    }
}

impl Callback {
    pub(crate) fn call(self) {
        debug_assert!(!self.0.vtable.is_repeatable, "a periodic callback runs in its node");
        let mut callback = ManuallyDrop::new(self);
        let call = callback.0.vtable.call;
        // SAFETY: the storage holds a value of type `vtable.type_of`. The call moves it out, and
        // `ManuallyDrop` prevents a second drop.
        unsafe { call(&raw mut callback.0.storage) }
    }

    /// Runs a one-shot or periodic callback for the last time, and drops it.
    pub(crate) fn call_and_drop(mut self) {
        if self.0.vtable.is_repeatable {
            // SAFETY: the storage holds a value of type `vtable.type_of`, which `self` owns.
            unsafe { (self.0.vtable.call)(&raw mut self.0.storage) }
        } else {
            self.call();
        }
    }

    #[inline]
    pub(crate) fn needs_drop(&self) -> bool {
        self.0.vtable.drop.is_some()
    }
}

/// A pointer to a callback that is to run or to be dropped in its node.
#[must_use]
pub(crate) struct CallbackInPlace(NonNull<Closure>);

impl CallbackInPlace {
    /// # Safety
    ///
    /// `dest` holds a callback, which no other code uses until [`run`](Self::run) or
    /// [`drop_in_place`](Self::drop_in_place) has returned. After the run of a one-shot callback,
    /// or the drop, `dest` counts as uninitialized.
    #[inline]
    pub(crate) unsafe fn new(dest: NonNull<Callback>) -> Self {
        Self(dest.cast())
    }

    #[inline]
    pub(crate) fn run(self) {
        // SAFETY: the closure exists (`new`), and is read before its call begins.
        let call = unsafe { self.0.as_ref() }.vtable.call;
        // SAFETY: the closure exists (`new`), and `&raw mut` borrows nothing.
        let storage = unsafe { &raw mut (*self.0.as_ptr()).storage };
        // SAFETY: the storage holds a value of type `vtable.type_of`, and no other code uses it
        // (`new`).
        unsafe { call(storage) }
    }

    #[inline]
    pub(crate) fn drop_in_place(self) {
        // SAFETY: the closure exists, and no other code uses it (`new`).
        unsafe { self.0.drop_in_place() }
    }
}

impl From<OneShotCallback> for Callback {
    #[inline]
    fn from(once: OneShotCallback) -> Self {
        Self(once.0)
    }
}

const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<InlineStorage>() && align_of::<F>() <= align_of::<InlineStorage>()
}

pub(crate) struct OneShotCallback(Closure);

impl OneShotCallback {
    #[inline]
    pub(crate) fn new<F: FnOnce() + 'static>(callback: F) -> Self {
        if fits::<F>() {
            Self(Closure::new::<_, CallOnce>(callback))
        } else {
            Self::boxed(Box::new(callback))
        }
    }

    fn boxed<F: FnOnce() + 'static>(callback: Box<F>) -> Self {
        Self(Closure::new::<_, CallOnce>(callback))
    }

    fn into_inner<F: FnOnce() + 'static>(self) -> Option<F> {
        self.0.into_closure()
    }

    /// Returns the original closure, which must be an `F`.
    pub(crate) fn downcast<F: FnOnce() + 'static>(self) -> F {
        self.into_inner().unwrap_or_else(|| unreachable!("it was made of an `F`"))
    }
}

pub(crate) struct SendCallback(Callback);

// SAFETY: the original closure is `Send` (`SendCallback::assume_send`).
unsafe impl Send for SendCallback {}

impl SendCallback {
    /// # Safety
    ///
    /// The callback's original closure is `Send`.
    pub(crate) unsafe fn assume_send(callback: Callback) -> Self {
        Self(callback)
    }

    /// Returns the original closure, which must be an `F`.
    pub(crate) fn downcast<F: Send + 'static>(self) -> F {
        self.0.0.into_closure().unwrap_or_else(|| unreachable!("it was made of an `F`"))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, panic, rc::Rc};

    use super::*;

    /// Returns a closure that captures `BYTES` bytes and a counter of its runs.
    fn closure_capturing<const BYTES: usize>(runs: &Rc<Cell<u32>>) -> impl FnMut() + 'static {
        let (runs, bytes) = (Rc::clone(runs), [7_u8; BYTES]);
        move || runs.set(runs.get() + u32::from(bytes.iter().all(|&byte| byte == 7)))
    }

    fn run(dest: &mut MaybeUninit<Callback>) {
        let dest = NonNull::from(dest).cast();
        // SAFETY: `dest` holds a callback, which no other code uses.
        unsafe { CallbackInPlace::new(dest) }.run();
    }

    fn one_shot<F: FnOnce() + 'static>(closure: F) -> MaybeUninit<Callback> {
        let mut dest = MaybeUninit::uninit();
        // SAFETY: `dest` is valid for writes.
        unsafe { RunOnce(closure).build(dest.as_mut_ptr()) };
        dest
    }

    fn once_runs_and_drops<const BYTES: usize>() {
        let runs = Rc::new(Cell::new(0));
        run(&mut one_shot(closure_capturing::<BYTES>(&runs)));
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
        // SAFETY: it holds a callback that has not run.
        drop(unsafe { one_shot(closure_capturing::<BYTES>(&runs)).assume_init() });
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
        drop(OneShotCallback::new(closure_capturing::<BYTES>(&runs)));
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
    }

    fn repeated_runs_and_drops<const BYTES: usize>() {
        let runs = Rc::new(Cell::new(0));
        let mut dest = MaybeUninit::uninit();
        // SAFETY: `dest` is valid for writes.
        unsafe { RunRepeatedly(closure_capturing::<BYTES>(&runs)).build(dest.as_mut_ptr()) };
        run(&mut dest);
        run(&mut dest);
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (2, 2));
        // SAFETY: it still holds a callback.
        drop(unsafe { dest.assume_init() });
        assert_eq!(Rc::strong_count(&runs), 1);
    }

    #[test]
    fn in_place_and_boxed_callbacks_run_and_are_dropped_once() {
        once_runs_and_drops::<0>();
        once_runs_and_drops::<24>();
        once_runs_and_drops::<25>();
        once_runs_and_drops::<1000>();
        repeated_runs_and_drops::<0>();
        repeated_runs_and_drops::<24>();
        repeated_runs_and_drops::<25>();
        repeated_runs_and_drops::<1000>();
    }

    fn into_inner_of<F: FnOnce() + 'static>(closure: F) -> F {
        OneShotCallback::new(closure).into_inner().expect("its own type")
    }

    fn check_into_inner<const BYTES: usize>() {
        let runs = Rc::new(Cell::new(0));
        let once = OneShotCallback::new(closure_capturing::<BYTES>(&runs));
        assert!(once.into_inner::<fn()>().is_none(), "another type");
        assert_eq!(Rc::strong_count(&runs), 1);
        into_inner_of(closure_capturing::<BYTES>(&runs))();
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
    }

    #[test]
    fn into_inner_returns_a_closure_of_the_same_type() {
        check_into_inner::<0>();
        check_into_inner::<24>();
        check_into_inner::<1000>();
    }

    #[test]
    fn a_panicking_callback_drops_its_captures() {
        let captured = Rc::new(7);
        let moved = Rc::clone(&captured);
        let mut callback = one_shot(move || {
            assert_eq!(*moved, 8, "a planned panic");
        });
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| run(&mut callback))).is_err());
        assert_eq!(Rc::strong_count(&captured), 1);
    }

    #[test]
    fn a_strictly_aligned_closure_runs_at_an_aligned_address() {
        #[repr(align(64))]
        struct Strict(u8);
        let strict = Strict(3);
        let seen = Rc::new(Cell::new(0));
        let sink = Rc::clone(&seen);
        run(&mut one_shot(move || {
            let strict = &strict;
            sink.set(usize::from(strict.0) + (&raw const *strict).addr() % 64);
        }));
        assert_eq!(seen.get(), 3);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_callback_takes_40_bytes() {
        assert_eq!(size_of::<Callback>(), 40);
        assert_eq!(size_of::<Option<Callback>>(), 40);
    }
}
