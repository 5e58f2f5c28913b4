//! Lookup of table rows by index, and the gradient of the table.

/// y `[token][width]` = the rows `ids` of `table`.
pub fn gather(y: &mut [f32], table: &[f32], ids: &[u32], width: usize) {
    assert_eq!(y.len(), ids.len() * width);
    for (y, &id) in y.chunks_exact_mut(width.max(1)).zip(ids) {
        y.copy_from_slice(row(table, id, width));
    }
}

/// y `[token][width]` += the rows `ids` of `table`.
pub fn add(y: &mut [f32], table: &[f32], ids: impl Iterator<Item = u32>, width: usize) {
    for (y, id) in y.chunks_exact_mut(width.max(1)).zip(ids) {
        for (y, x) in y.iter_mut().zip(row(table, id, width)) {
            *y += x;
        }
    }
}

/// Adds the rows of d_y `[token][width]` to the rows `ids` of `d_table`, in token order.
pub fn scatter(d_table: &mut [f32], d_y: &[f32], ids: impl Iterator<Item = u32>, width: usize) {
    for (d_y, id) in d_y.chunks_exact(width.max(1)).zip(ids) {
        let at = id as usize * width;
        for (sum, d) in d_table[at..at + width].iter_mut().zip(d_y) {
            *sum += d;
        }
    }
}

fn row(table: &[f32], id: u32, width: usize) -> &[f32] {
    &table[id as usize * width..(id as usize + 1) * width]
}
