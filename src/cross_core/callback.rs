//! The callbacks of timers. A closure of at most 32 bytes, with at most the alignment of a `u64`,
//! is stored inline. Any other closure is stored in a box (P4 in `ARCHITECTURE.md`).

#![allow(unsafe_code)]

use std::{
    marker::PhantomData,
    mem::{self, ManuallyDrop, MaybeUninit},
    ptr::{self, NonNull},
};

/// The storage for a closure or its box.
type ClosureStorage = MaybeUninit<[u64; 4]>;

/// The callback of a timer: a closure of any type, in storage of fixed size.
///
/// After `build`, the storage holds the closure or its box, until this *value* is moved out or
/// dropped. The vtable has the operations of the value's type.
#[repr(C)]
pub(crate) struct Callback {
    storage: ClosureStorage,
    vtable: &'static VTable,
    /// The captures need not be `Send`.
    not_send: PhantomData<*const ()>,
}

/// The operations on a callback's stored value. `call` and `drop` take a pointer to the storage.
pub(crate) struct VTable {
    /// Calls the value. Moves a one-shot callback's value out of the storage.
    call: unsafe fn(*mut ClosureStorage),
    /// Drops the value. `None` if the value's type needs no drop.
    drop: Option<unsafe fn(*mut ClosureStorage)>,
    is_repeatable: bool,
    /// Replaces this vtable if the wheel ends while the timer is pending. The vtable is for the
    /// same type. `None` if the end of the wheel makes no difference.
    after_wheel_end: Option<&'static VTable>,
}

/// A value that a one-shot timer runs.
pub(crate) trait RunOnce: 'static {
    fn run(self);
}

impl<F: FnOnce() + 'static> RunOnce for F {
    #[inline]
    fn run(self) {
        self();
    }
}

impl VTable {
    pub(crate) const fn one_shot<F: RunOnce>() -> Self {
        Self::new::<F>(call_once::<F>, false)
    }

    /// Returns the vtable of a one-shot callback. If the wheel ends while the timer is pending,
    /// dropping the callback runs it.
    pub(crate) const fn one_shot_run_after_wheel_end<F: RunOnce>() -> Self {
        let after_wheel_end =
            const { &Self { drop: Some(call_once::<F>), ..Self::one_shot::<F>() } };
        Self { after_wheel_end: Some(after_wheel_end), ..Self::one_shot::<F>() }
    }

    const fn periodic<F: FnMut() + 'static>() -> Self {
        Self::new::<F>(call_mut::<F>, true)
    }

    const fn new<F: 'static>(call: unsafe fn(*mut ClosureStorage), is_repeatable: bool) -> Self {
        let drop: Option<unsafe fn(*mut ClosureStorage)> =
            if mem::needs_drop::<F>() { Some(drop_in_storage::<F>) } else { None };
        Self { call, drop, is_repeatable, after_wheel_end: None }
    }
}

/// # Safety
///
/// `storage` points to storage that holds an `F`, which the call consumes.
unsafe fn call_once<F: RunOnce>(storage: *mut ClosureStorage) {
    // SAFETY: the storage holds an `F`, which this call consumes (caller). `build` has put the `F`
    // at an address aligned for it.
    unsafe { storage.cast::<F>().read() }.run();
}

/// # Safety
///
/// `storage` points to storage that holds an `F` and is not used by any other code during the call.
unsafe fn call_mut<F: FnMut()>(storage: *mut ClosureStorage) {
    // SAFETY: the storage holds an `F`, which no other code uses (caller). `build` has put the `F`
    // at an address aligned for it.
    let closure = unsafe { &mut *storage.cast::<F>() };
    closure();
}

/// # Safety
///
/// `storage` points to storage that holds an `F`, which the call drops.
unsafe fn drop_in_storage<F>(storage: *mut ClosureStorage) {
    // SAFETY: the storage holds an `F`, which this call consumes (caller). `build` has put the `F`
    // at an address aligned for it.
    unsafe { storage.cast::<F>().drop_in_place() }
}

/// Builds a payload directly at its final address.
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

/// A finished payload, which `build` moves to its final address.
#[derive(Debug)]
pub(crate) struct MoveIntoPlace<T>(pub(crate) T);

// SAFETY: `write` initializes `dest`.
unsafe impl<T> BuildInPlace<T> for MoveIntoPlace<T> {
    #[inline]
    unsafe fn build(self, dest: *mut T) {
        // SAFETY: `dest` is valid for writes (caller).
        unsafe { dest.write(self.0) }
    }
}

/// A closure that becomes the callback of a timer. If an add is refused, `into_closure` gives the
/// closure back.
///
/// # Safety
///
/// In `INLINE_AND_BOXED_VTABLES`, the first vtable is for `Closure`, and the second is for
/// `Box<Closure>`.
pub(crate) unsafe trait IntoCallback {
    type Closure: 'static;
    const INLINE_AND_BOXED_VTABLES: [&'static VTable; 2];

    fn into_closure(self) -> Self::Closure;
}

/// A closure that becomes the callback of a one-shot timer.
pub(crate) struct OneShotClosure<F>(pub(crate) F);

/// A closure that becomes the callback of a periodic timer.
pub(crate) struct PeriodicClosure<F>(pub(crate) F);

// SAFETY: the vtables are for `F` and `Box<F>`.
unsafe impl<F: FnOnce() + 'static> IntoCallback for OneShotClosure<F> {
    type Closure = F;
    const INLINE_AND_BOXED_VTABLES: [&'static VTable; 2] =
        [&VTable::one_shot::<F>(), &VTable::one_shot::<Box<F>>()];

    fn into_closure(self) -> F {
        self.0
    }
}

// SAFETY: the vtables are for `F` and `Box<F>`.
unsafe impl<F: FnMut() + 'static> IntoCallback for PeriodicClosure<F> {
    type Closure = F;
    const INLINE_AND_BOXED_VTABLES: [&'static VTable; 2] =
        [&VTable::periodic::<F>(), &VTable::periodic::<Box<F>>()];

    fn into_closure(self) -> F {
        self.0
    }
}

// SAFETY: `build` writes `storage` and `vtable`. The remaining field, `not_send`, has size zero.
unsafe impl<C: IntoCallback> BuildInPlace<Callback> for C {
    /// Builds the callback directly at its final address. Moving a finished callback would be
    /// slower: the wide loads would stall on the small stores just made.
    #[inline]
    unsafe fn build(self, dest: *mut Callback) {
        let (closure, [inline_vtable, boxed_vtable]) =
            (self.into_closure(), C::INLINE_AND_BOXED_VTABLES);
        // SAFETY: `dest` is valid for writes (caller).
        let storage = unsafe { &raw mut (*dest).storage };
        let vtable = if const { fits_inline::<C::Closure>() } {
            // SAFETY: the closure is not larger than the storage and needs no stricter alignment.
            unsafe { storage.cast::<C::Closure>().write(closure) };
            inline_vtable
        } else {
            // SAFETY: a box fits the storage.
            unsafe { storage.cast::<Box<C::Closure>>().write(Box::new(closure)) };
            boxed_vtable
        };
        // SAFETY: `dest` is valid for writes (caller).
        let vtable_dest = unsafe { &raw mut (*dest).vtable };
        // SAFETY: `vtable_dest` points into `dest`.
        unsafe { vtable_dest.write(vtable) };
    }
}

impl Callback {
    #[cfg(test)]
    pub(crate) fn one_shot<F: FnOnce() + 'static>(closure: F) -> Self {
        let mut dest = MaybeUninit::uninit();
        // SAFETY: `dest` is valid for writes.
        unsafe { OneShotClosure(closure).build(dest.as_mut_ptr()) };
        // SAFETY: `build` has initialized `dest`.
        unsafe { dest.assume_init() }
    }

    /// Runs a one-shot or periodic callback for the last time, and drops it.
    pub(crate) fn call_and_drop(mut self) {
        let call = self.vtable.call;
        if self.vtable.is_repeatable {
            // SAFETY: the storage holds a value of the vtable's type. `self` owns this value.
            unsafe { call(&raw mut self.storage) }
        } else {
            let mut callback = ManuallyDrop::new(self);
            // SAFETY: the storage holds a value of the vtable's type. The call moves this value
            // out, and `ManuallyDrop` prevents a second drop.
            unsafe { call(&raw mut callback.storage) }
        }
    }

    #[inline]
    pub(crate) fn needs_drop(&self) -> bool {
        self.vtable.drop.is_some()
    }

    /// Records that the wheel has ended while the timer was pending.
    pub(crate) fn note_wheel_end(&mut self) {
        self.vtable = self.vtable.after_wheel_end.unwrap_or(self.vtable);
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: the storage holds a value of the vtable's type, and is not used after the
            // drop.
            unsafe { drop(&raw mut self.storage) }
        }
    }
}

/// Runs a callback in a timer's node.
///
/// # Safety
///
/// `callback` points to a callback, which no other code uses during the call. After the call, the
/// memory of a one-shot callback counts as uninitialized.
#[inline]
pub(crate) unsafe fn run_in_place(callback: NonNull<Callback>) {
    // SAFETY: the pointer is to a callback (caller). The borrow ends before the call.
    let call = unsafe { callback.as_ref() }.vtable.call;
    // SAFETY: the pointer is to a callback (caller), and `&raw mut` borrows nothing.
    let storage = unsafe { &raw mut (*callback.as_ptr()).storage };
    // SAFETY: the storage holds a value of the vtable's type, and no other code uses the callback
    // (caller).
    unsafe { call(storage) }
}

/// Moves the closure out of a callback that was built from a `C`. The inline vtable of `C` must be a
/// static, because the vtable's address identifies the closure's type.
///
/// # Safety
///
/// `callback` points to a callback, which no other code uses. After this call, the memory counts as
/// uninitialized.
#[inline]
pub(crate) unsafe fn take_inline_closure<C: IntoCallback>(
    callback: NonNull<Callback>,
) -> C::Closure {
    const { assert!(fits_inline::<C::Closure>()) };
    // SAFETY: the pointer is to a callback (caller).
    let vtable = unsafe { callback.as_ref() }.vtable;
    assert!(ptr::eq(vtable, C::INLINE_AND_BOXED_VTABLES[0]), "another callback");
    // SAFETY: the vtable's address shows that the callback was built from a `C`. No other code uses
    // the callback (caller).
    unsafe { take_closure::<C>(callback) }
}

/// Moves the closure out of a callback and, if the closure is boxed, out of its box.
///
/// # Safety
///
/// `callback` points to a callback that was built from a `C`, and that no other code uses. After
/// this call, the memory counts as uninitialized.
pub(crate) unsafe fn take_closure<C: IntoCallback>(callback: NonNull<Callback>) -> C::Closure {
    if const { fits_inline::<C::Closure>() } {
        // SAFETY: the callback was built from a `C` (caller), so `build` has put the closure in the
        // first field.
        unsafe { callback.cast::<C::Closure>().read() }
    } else {
        // SAFETY: the callback was built from a `C` (caller), so `build` has put a box in the first
        // field.
        *unsafe { callback.cast::<Box<C::Closure>>().read() }
    }
}

const fn fits_inline<F>() -> bool {
    size_of::<F>() <= size_of::<ClosureStorage>() && align_of::<F>() <= align_of::<ClosureStorage>()
}

/// A callback that another thread may drop, because its closure is `Send`.
pub(crate) struct SendCallback {
    _callback: Callback,
}

// SAFETY: the caller of `assume_send` has promised that the original closure is `Send`.
unsafe impl Send for SendCallback {}

impl SendCallback {
    /// # Safety
    ///
    /// The callback's original closure is `Send`.
    pub(crate) unsafe fn assume_send(callback: Callback) -> Self {
        Self { _callback: callback }
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
        unsafe { run_in_place(dest) };
    }

    fn once_runs_and_drops<const BYTES: usize>() {
        let runs = Rc::new(Cell::new(0));
        run(&mut MaybeUninit::new(Callback::one_shot(closure_capturing::<BYTES>(&runs))));
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
        drop(Callback::one_shot(closure_capturing::<BYTES>(&runs)));
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
    }

    fn repeated_runs_and_drops<const BYTES: usize>() {
        let runs = Rc::new(Cell::new(0));
        let mut dest = MaybeUninit::uninit();
        // SAFETY: `dest` is valid for writes.
        unsafe { PeriodicClosure(closure_capturing::<BYTES>(&runs)).build(dest.as_mut_ptr()) };
        run(&mut dest);
        run(&mut dest);
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (2, 2));
        // SAFETY: `dest` still holds a callback.
        drop(unsafe { dest.assume_init() });
        assert_eq!(Rc::strong_count(&runs), 1);
    }

    #[test]
    fn inline_and_boxed_callbacks_run_and_are_dropped_once() {
        once_runs_and_drops::<0>();
        once_runs_and_drops::<24>();
        once_runs_and_drops::<25>();
        once_runs_and_drops::<1000>();
        repeated_runs_and_drops::<0>();
        repeated_runs_and_drops::<24>();
        repeated_runs_and_drops::<25>();
        repeated_runs_and_drops::<1000>();
    }

    fn round_trip<F: FnOnce() + 'static>(closure: F) -> F {
        let mut callback = MaybeUninit::new(Callback::one_shot(closure));
        // SAFETY: the callback was built from a `OneShotClosure<F>`, and is not used again.
        unsafe { take_closure::<OneShotClosure<F>>(NonNull::from(&mut callback).cast()) }
    }

    fn check_round_trip<const BYTES: usize>() {
        let runs = Rc::new(Cell::new(0));
        round_trip(closure_capturing::<BYTES>(&runs))();
        assert_eq!((runs.get(), Rc::strong_count(&runs)), (1, 1));
    }

    #[test]
    fn take_closure_returns_the_closure_unboxed() {
        check_round_trip::<0>();
        check_round_trip::<24>();
        check_round_trip::<1000>();
    }

    #[test]
    fn a_panicking_callback_drops_its_captures() {
        let captured = Rc::new(7);
        let moved = Rc::clone(&captured);
        let callback = Callback::one_shot(move || assert_eq!(*moved, 8, "a planned panic"));
        let mut callback = MaybeUninit::new(callback);
        assert!(panic::catch_unwind(panic::AssertUnwindSafe(|| run(&mut callback))).is_err());
        assert_eq!(Rc::strong_count(&captured), 1);
    }

    #[test]
    fn a_strictly_aligned_closure_runs_at_an_aligned_address() {
        #[repr(align(64))]
        struct StrictlyAligned(u8);
        let strict = StrictlyAligned(3);
        let seen = Rc::new(Cell::new(0));
        let seen_by_callback = Rc::clone(&seen);
        run(&mut MaybeUninit::new(Callback::one_shot(move || {
            let strict = &strict;
            seen_by_callback.set(usize::from(strict.0) + (&raw const *strict).addr() % 64);
        })));
        assert_eq!(seen.get(), 3);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_callback_takes_40_bytes() {
        assert_eq!(size_of::<Callback>(), 40);
        assert_eq!(size_of::<Option<Callback>>(), 40);
    }
}
