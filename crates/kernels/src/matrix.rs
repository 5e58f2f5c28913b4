//! General matrix products.

/// A matrix in memory: its elements, and the strides between rows and between columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Matrix<'_> {
    pub(crate) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    fn holds(self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// c `[rows][columns]`, with a row every `step` floats, = scale * a `[rows][depth]` * b `[depth][columns]`, or c += it.
pub(crate) struct Product<'a> {
    pub(crate) c: &'a mut [f32],
    pub(crate) step: usize,
    pub(crate) add: bool,
    pub(crate) scale: f32,
    pub(crate) a: Matrix<'a>,
    pub(crate) b: Matrix<'a>,
}

impl Product<'_> {
    pub(crate) fn run(self, (rows, columns, depth): (usize, usize, usize)) {
        let Self { c, step, add, scale, a, b } = self;
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(step >= columns && (rows - 1) * step + columns <= c.len());
        assert!(a.holds(rows, depth) && b.holds(depth, columns));
        // The gemm kernel runs along the columns of its result.
        let (m, n, (across, down), left, right) = if step > 1 {
            (columns, rows, (step, 1), b.transposed(), a.transposed())
        } else {
            (rows, columns, (1, step), a, b)
        };
        let product = gemm_f32::gemm::f32::get_gemm_fn();
        // SAFETY: all three matrices lie inside their slices, as checked above.
        unsafe {
            product(
                m,
                n,
                depth,
                c.as_mut_ptr(),
                across as isize,
                down as isize,
                add,
                left.data.as_ptr(),
                left.column as isize,
                left.row as isize,
                right.data.as_ptr(),
                right.column as isize,
                right.row as isize,
                1.0,
                scale,
                false,
                false,
                false,
                gemm_common::Parallelism::None,
            );
        }
    }
}
