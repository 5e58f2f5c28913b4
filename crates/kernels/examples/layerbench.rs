#![allow(clippy::all, clippy::unwrap_used, clippy::print_stdout)]
//! temporary
use fedelity_kernels::*;
use std::time::Instant;
fn t(name: &str, bytes: usize, mut f: impl FnMut()) {
    f();
    let mut best = f64::MAX; let t0 = Instant::now();
    while t0.elapsed().as_secs_f64() < 0.15 { let t = Instant::now(); f(); best = best.min(t.elapsed().as_secs_f64()); }
    println!("{name:34} {:9.2} us {:7.1} GB/s", best * 1e6, bytes as f64 / best * 1e-9);
}
fn main() {
    let isa = std::env::args().nth(1).and_then(|n| Isa::from_name(&n)).unwrap_or(Isa::detect()); let l = isa.lanes();
    println!("peak {}", peak(isa, 0.3));
    for (c, h, halo) in [(16usize, 32usize, 1usize), (16, 32, 0), (64, 8, 1), (256, 4, 1)] {
        println!("-- {c}x{h}x{h} halo {halo}");
        let p = Plane { height: h, width: h, halo };
        let n = c * p.area() * l; let e = c * h * h * l * 4;
        let mut s = 1u32; let mut v = || -> Vec<f32> { (0..n).map(|_| { s = s.wrapping_mul(1664525).wrapping_add(1013904223); (s >> 8) as f32 / 8388608.0 - 1.0 }).collect() };
        let (x, a) = (v(), v()); let mut y = v(); let mut dx = v();
        let g = vec![1.0f32; c]; let b = vec![0.1f32; c]; let (mut dg, mut db) = (vec![0.0f32; c], vec![0.0f32; c]);
        let norm = group_norm::GroupNorm { channels: c, groups_of_channels: 2 }; let mut st = vec![0.0f32; norm.stats(1, l)];
        t("memcpy", 2 * e, || y.copy_from_slice(&x));
        t("clear_halo", 0, || clear_halo(&mut dx, p, c, l));
        t("gn fwd relu", 3 * e, || group_norm::forward(isa, &mut y, p, &mut st, &x, p, &g, &b, norm, 1, true));
        let y2 = y.clone();
        t("gn bwd relu", 7 * e, || group_norm::backward(isa, &mut dx, p, &mut dg, &mut db, &a, p, Some((&y2, p)), &x, p, &st, &g, norm, 1));
        t("gn bwd", 5 * e, || group_norm::backward(isa, &mut dx, p, &mut dg, &mut db, &a, p, None, &x, p, &st, &g, norm, 1));
        let (mut bs, mut rm, mut rv) = (vec![0.0f32; 2 * c], vec![0.0f32; c], vec![0.0f32; c]);
        t("bn fwd relu", 3 * e, || batch_norm::forward_training(isa, &mut y, p, &mut bs, &mut rm, &mut rv, &x, p, &g, &b, c, 1, l - 1, true));
        t("bn bwd relu", 7 * e, || batch_norm::backward(isa, &mut dx, p, &mut dg, &mut db, &a, p, Some((&y2, p)), &x, p, &bs, &g, c, 1, l - 1));
        t("relu", 2 * e, || elementwise::relu_forward(isa, &mut y, p, &x, p, c, 1));
        t("relu bwd", 3 * e, || elementwise::relu_backward(isa, &mut dx, p, &a, p, &y, p, c, 1));
        t("add relu", 3 * e, || elementwise::add_forward(isa, &mut y, p, &a, p, &x, p, c, 1, true));
        t("add_to", 3 * e, || elementwise::add_to(isa, &mut y, p, &x, p, c, 1));
        for (k, s, pad) in [(2, 2, 0), (3, 2, 1)] {
            let w = pool::Window { kernel: k, stride: s, pad }; let (oh, ow) = w.output(p).unwrap(); let q = Plane { height: oh, width: ow, halo };
            let mut yy = vec![0.0f32; c * q.area() * l]; let mut ch = vec![0.0f32; c * q.pixels() * l]; let oe = c * oh * ow * l * 4;
            t(&format!("max {k}/{s} relu"), e + 2 * oe, || pool::max_forward(isa, &mut yy, q, &mut ch, &x, p, c, 1, w, true));
            t(&format!("max {k}/{s} bwd"), e + 2 * oe, || pool::max_backward(isa, &mut dx, p, &yy, q, &ch, c, 1, w));
            t(&format!("avg {k}/{s}"), e + oe, || pool::average_forward(isa, &mut yy, q, &x, p, c, 1, w));
            t(&format!("avg {k}/{s} bwd"), e + oe, || pool::average_backward(isa, &mut dx, p, &yy, q, c, 1, w));
        }
        let mut gl = vec![0.0f32; c * l];
        t("global", e, || pool::global_forward(isa, &mut gl, &x, p, c, 1));
        t("global bwd", e, || pool::global_backward(isa, &mut dx, p, &gl, c, 1));
        let mut rows = vec![0.0f32; c * h * h * l];
        t("to_rows", 2 * e, || lanes::to_rows(isa, &mut rows, &x, p, c, l));
        t("from_rows", 2 * e, || lanes::from_rows(isa, &mut y, p, c, &rows, l));
    }
    let px: Vec<u8> = (0..3072 * 50).map(|i| (i * 7) as u8).collect(); let idx: Vec<u32> = (0..l as u32).map(|i| i * 3 % 50).collect();
    let p = Plane { height: 32, width: 32, halo: 1 }; let mut x = vec![0.0f32; 3 * p.area() * l];
    t("gather 3x32x32", 0, || lanes::gather_u8(isa, &mut x, p, 3, &px, &idx, &[0.1; 3], &[0.5; 3]));
    let p = Plane { height: 28, width: 28, halo: 0 };
    t("gather 1x28x28", 0, || lanes::gather_u8(isa, &mut x, p, 1, &px, &idx, &[0.1; 3], &[0.5; 3]));
    let n = 100_000; let (mut w, mut m, mut v, g) = (vec![0.1f32; n], vec![0.1f32; n], vec![0.1f32; n], vec![0.01f32; n]); let mut d = vec![0.0f64; n];
    t("sgd 100k", 20 * n, || elementwise::sgd_step(isa, &mut w, &mut v, &g, 0.001, 0.9, 0.001, false));
    t("adam 100k", 28 * n, || elementwise::adam_step(isa, &mut w, &mut m, &mut v, &g, 0.001, (0.9, 0.999), 1e-8, 0.0, 3));
    t("axpy", 12 * n, || elementwise::axpy(isa, &mut w, 0.001, &g));
    t("accumulate", 20 * n, || elementwise::accumulate(isa, &mut d, 0.001, &g));
    t("norm", 4 * n, || { std::hint::black_box(elementwise::squared_norm(isa, &g)); });
    t("distance", 8 * n, || { std::hint::black_box(elementwise::squared_distance(isa, &g, &w)); });
    t("dropout 100k", 8 * n, || dropout::forward(&mut w, &g, 0.5, 3));
    let z = vec![0.3f32; 640]; let mut dz = vec![0.0f32; 640]; let lab = vec![1u16; 64];
    t("xent 64x10", 0, || { std::hint::black_box(softmax::cross_entropy(&z, &lab, 10, 1.0, &mut dz)); });
    let (n, i, o) = (64, 400, 120); let xx = vec![0.1f32; n * i]; let ww = vec![0.1f32; o * i]; let mut yy = vec![0.0f32; n * o]; let mut dw = ww.clone(); let mut dxx = xx.clone();
    t("dense 64x400x120 fwd", 2000 * n * i * o / 1000, || dense::forward(&mut yy, &xx, &ww, Some(&ww), n, i, o, true));
    t("dense 64x400x120 dx", 2000 * n * i * o / 1000, || dense::input_gradient(&mut dxx, &yy, &ww, n, i, o, false));
    t("dense 64x400x120 dw", 2000 * n * i * o / 1000, || dense::weight_gradient(&mut dw, &yy, &xx, n, i, o));
}
