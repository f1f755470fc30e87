//! Bytes of this module that Python reads in place, without a copy.

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A read-only buffer of bytes, which are freed once no view refers to them.
#[pyclass(frozen, module = "txn_native_transport")]
pub struct HeldBytes(Bytes);

impl HeldBytes {
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[pymethods]
impl HeldBytes {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[expect(unsafe_code, reason = "Python's buffer protocol is made of pointers")]
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &slf.get().0;
        let size = bytes.len().try_into().map_err(|_| PyBufferError::new_err("too large for a buffer"))?;
        // SAFETY: Python hands in a view to fill. The bytes never move or change, and live as long as their object,
        // which the view keeps.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), size, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
