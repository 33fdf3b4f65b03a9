"""Expressions of a matrix x, and of a stack of matrices, as people write them: functions with their keywords, methods, subscripts and operators."""

FORMS = """
x.sum()  x.sum(axis=0)  x.sum(axis=-1, keepdims=True)  x.sum(axis=(0,1))  x.sum(axis=())  x.sum(0)  x.sum(dtype=np.float64)  x.sum(dtype='f4')
x.sum(axis=1, dtype=np.int64)  np.sum(x, initial=10)  np.sum(x, axis=0, where=x!=0)
np.sum(x, axis=0, where=np.array([True,False,True,False,True,True]))  sum(x)  sum(x, start=1)  x.prod(axis=1)
np.prod(x, axis=0, keepdims=True, initial=2)  np.prod(x[:, :2], where=x[:, :2] != 0)  x.mean()  x.mean(axis=(0,1), keepdims=True)
x.mean(0, dtype=np.float64)  np.mean(x, where=x!=0)  np.mean(x, axis=1, where=x!=0)  np.mean(x, dtype=np.float32)  np.mean(x, dtype=np.float16)
x.max()  x.max(axis=1)  x.max(axis=(0,1))  x.max(-1, keepdims=True)  np.max(x, initial=5)  np.max(x, axis=0, initial=5, where=x!=0)  np.amax(x, 0)
x.min()  np.amin(x, axis=1, keepdims=True)  np.min(x, axis=0, initial=-2, where=x>2)  x.any()  x.all()  x.any(axis=0)  x.all(axis=(0,1))
np.any(x, where=x>2)  np.all(x, axis=1, keepdims=True)  np.all(x>0)  np.std(x, ddof=1)  x.std(axis=(0,1))  x.std(dtype=np.float64)
np.std(x, where=x!=0)  np.std(x, axis=1, keepdims=True, ddof=2)  np.std(x, axis=0, mean=np.mean(x, axis=0, keepdims=True))  np.std(x, correction=1)
x.var()  x.var(axis=0, ddof=1)  np.var(x, dtype=np.float32)  np.median(x)  np.median(x, axis=-1)  np.average(x)
np.average(x, weights=np.arange(24).reshape(4,6))  np.average(x, axis=0, weights=[1,2,3,4])  np.average(x, axis=(0,1))  np.ptp(x)
np.ptp(x, axis=0, keepdims=True)  np.nanmean(x)  np.nanmean(x, axis=0)  np.nansum(x, axis=1, keepdims=True)  np.nanprod(x, axis=0)  np.nanmax(x)
np.nanmin(x, axis=0)  np.cumsum(x)  x.cumsum(axis=0)  np.cumsum(x, axis=-1, dtype=np.float32)  np.cumprod(x[0])  np.diff(x)  np.diff(x, n=2)
np.diff(x, axis=0, n=0)  np.diff(x[0], prepend=0, append=0)  np.argmax(x)  x.argmax(axis=0)  x.argmax(-1)  np.argmin(x, axis=1, keepdims=True)
np.argsort(x, kind='stable')  x.argsort(axis=0, kind='stable')  np.argsort(x, axis=None, kind='stable')  np.sort(x)  np.sort(x, axis=0)
np.sort(x)[::-1]  np.sort(x, axis=-1)[:, ::-1]  np.sort(x, kind='mergesort')  np.searchsorted(np.array([-1, 0, 2, 5]), x)
np.searchsorted(np.sort(x[0]), 3)  np.searchsorted(np.sort(x[0]), 3, side='right')  np.searchsorted(np.sort(x[0]), x[1], 'right')
np.sort(x[0]).searchsorted(x[1])  np.digitize(x, [0, 1, 5])  np.digitize(x[0], np.array([5, 1, 0]), right=True)
np.bincount(abs(x[0]).astype(int) % 7, minlength=8)  np.bincount([0, 1, 1, 2, 0, 3], weights=x[0])  np.histogram(x, bins=[0, 1, 2, 3])
np.histogram(x, bins=5, range=(0, 10))  np.take(x, 3)  np.take(x, [0, 1], axis=1)  np.take(x, [[0, 1], [2, -1]])  np.take(x, -1, axis=0)
x.take(np.array([0, 2]), axis=-1)  np.take_along_axis(x, np.argmax(x, axis=1, keepdims=True), axis=1)
np.take_along_axis(x, np.array([3, 2, 1]), axis=None)  np.repeat(x, 3)  np.repeat(x, [1, 2, 3, 0], axis=0)  x.repeat(2, axis=-1)  np.tile(x[0], 3)
np.tile(x, (2, 2))  np.tile(x, (2, 1, 2))  np.tile(x[0,0], 3)  np.roll(x, 1)  np.roll(x, -2, axis=1)  np.roll(x, (1, -1), axis=(0, 1))
np.roll(x, 1, axis=(0,1))  np.rot90(x, k=3)  np.rot90(x, axes=(1, 0))  np.rot90(x, k=2, axes=(1, 0))  np.flip(x)  np.flip(x, axis=(0, 1))
np.flip(x, -1)  np.fliplr(x)  np.flipud(x[0])  np.triu(x, k=1)  np.tril(x, k=-2)  np.tril(np.ones((4,6))) * x  np.tril(np.stack([x, x]))
np.diag(x[0])  np.diag(x, k=1)  np.diag(x, -3)  np.diagonal(x)  np.diagonal(x, offset=-1)  np.diagonal(np.stack([x, x]), axis1=1, axis2=2)
x.diagonal(2)  np.trace(x)  np.trace(x, offset=2)  np.trace(np.stack([x, x]), axis1=1, axis2=2)  np.eye(4) @ x  np.identity(4) @ x  np.zeros_like(x)
np.zeros_like(x, dtype=np.int32)  np.zeros_like(x, shape=(2, 2))  np.ones_like(x)  np.ones_like(x, dtype=bool)  np.full_like(x, 7)
np.full_like(x, 1.5)  np.full_like(x, x[0, 0])  np.full_like(x, 2, dtype=np.float64)  np.full(x.shape, 2.5) + x  np.arange(x.shape[0])[:, None] * x
np.arange(6, dtype=x.dtype) + x  np.linspace(0, 1, 6) * x  np.linspace(x[0, 0], x[0, 1], 4)  np.linspace(x[0], x[1], 3, axis=1)
np.linspace(0, 10, 6, dtype=int) + x  np.logspace(0, 2, 6) + x  np.geomspace(1, 100, 6) + x  np.meshgrid(x[0], x[:, 0], indexing='ij')
np.meshgrid(x[0], x[:, 0], sparse=True)  np.indices((4, 6)) * x  np.broadcast_to(x, (3, 4, 6))  np.broadcast_to(x[0], (4, 6))
np.broadcast_to(x[0, 0], (2,))  np.broadcast_arrays(x, x[:, :1])  np.split(x, 2)  np.split(x, [1, 3])  np.split(x, 3, axis=1)
np.split(x, [2, 2, 5], axis=1)  np.array_split(x, 4, axis=1)  np.array_split(x[0], [1, 3])  np.hsplit(x, 2)  np.vsplit(x, 4)  np.hsplit(x[0], [2])
np.stack([x, x], axis=1)  np.stack((x[0], x[1]), -1)  np.stack([x, x.astype(np.float64)])  np.concatenate([x, x], axis=1)
np.concatenate((x[0], x[1], [1, 2]))  np.concatenate([x, x], axis=None)  np.concatenate([x, np.ones((1, 6))])  np.concat([x, x])  np.vstack((x, x[0]))
np.hstack((x[0], x[1]))  np.dstack((x, x))  np.append(x, 5)  np.append(x, x[:1], axis=0)  np.append(x[0], [1, 2])  np.where(x > 1, x, -x)
np.where(x > 1, x, 0)  np.where(x > 1, 1.5, x)  np.where(x > 1, x, x.astype('f4'))  np.where(x, 1, 0)  np.where(x > 1, True, False)
np.where(x[:, :1] > 1, x, x[0])  np.where(True, x, 0)  np.select([x > 3, x > 1], [x, x * 2])  np.select([x > 3, x > 1], [x, x * 2], default=-1)
np.select([x > 3, x > 1], [1, 2], 0)  np.select([x[0] > 3, x[1] > 3], [x, 0])  np.choose([0, 1, 0, 1, 0, 1], [x[0], x[1]])
np.choose((x > 1).astype(int), [x, -x])  np.choose(x[0].astype(int) % 9, [x[0], x[1]], mode='clip')  np.clip(x, 0, 5)  np.clip(x, None, 3)
np.clip(x, 1, None)  np.clip(x, 0.5, 3.5)  x.clip(1, 3)  x.clip(min=1)  x.clip(0, x.max())  np.clip(x, x.min(), x.mean())
np.clip(x, a_min=0, a_max=4)  np.clip(x, min=0, max=4)  np.clip(x, np.arange(6), 5)  np.clip(x, 5, 1)  np.clip(x, np.float32(0), np.float64(4))
np.clip(x, 0, 300)  np.clip(x, -1, 4)  np.nan_to_num(x)  np.nan_to_num(x, nan=1, posinf=2, neginf=3)  np.interp(x, [0, 1, 2], [0, 10, 20])
np.interp(x, np.array([0, 1, 2]), np.array([0, 10, 20]), left=-1, right=99)  np.interp(x[0, 0], [0, 1, 2], [0, 10, 20])
np.interp(2.5, np.arange(6), x[0])  np.round(x, 2)  np.round(x)  x.round(1)  x.round()  np.around(x, -1)  np.fix(x)  np.rint(x)  np.floor(x)
np.ceil(x)  np.trunc(x)  np.isclose(x, x + 1e-9)  np.isclose(x, 1)  np.isclose(x, x, equal_nan=True)  np.allclose(x, x)  np.array_equal(x, x)
np.array_equal(x, x[0])  np.real(x)  np.imag(x)  x.real  x.imag  np.conj(x)  x.conj()  x.conjugate()  np.angle(x)  np.angle(x, deg=True)
np.convolve(x[0], [1, 2, 1])  np.convolve(x[0], np.array([1, 0, -1]), mode='same')  np.convolve(x[0], x[1], 'valid')  np.correlate(x[0], [1, 2, 1])
np.correlate(x[0], [1, 2], mode='same')  np.correlate([1, 2], x[0], mode='full')  np.pad(x, 2)  np.pad(x, (1, 2), mode='edge')
np.pad(x, ((1, 0), (0, 1)), mode='constant', constant_values=5)  np.pad(x, 1, constant_values=((1, 2), (3, 4)))  np.pad(x, 1, mode='reflect')
np.pad(x, 2, mode='symmetric')  np.pad(x, 2, mode='wrap')  np.pad(x[0], (0, 3))  np.cross(x[:, :3], x[:, 3:])  np.cross(x[0, :3], x[1, :3])
np.kron(x[:2, :2], np.eye(2))  np.kron(x[0], [1, 2])  np.outer(x[0], x[1])  np.outer(x[0], [1, 2])  np.inner(x[0], x[1])  np.inner(x, x)
np.dot(x, x.T)  np.dot(x[0], x[1])  np.dot(x, x[0])  x.dot(x.T)  np.dot(3, x)  x @ x.T  x.T @ x  x[0] @ x[1]  x @ np.ones(6)  np.ones(4) @ x
np.matmul(x, x.T)  np.matmul(x, np.ones((6, 2), np.int8))  np.vecdot(x, x)  np.vecdot(x, x[0], axis=-1)  np.vecdot(x, x, axis=0)  np.matvec(x, x[0])
np.vecmat(x[:, 0], x)  np.tensordot(x, x, axes=2)  np.tensordot(x, x, axes=([0], [0]))  np.tensordot(x, x.T, axes=1)  np.tensordot(x, x, axes=0)
np.einsum('ij,ij->i', x, x)  np.einsum('ij->ji', x)  np.einsum('ij', x)  np.einsum('ij->', x)  np.einsum('i,j->ij', x[0], x[1])
np.einsum('ij,j->i', x, x[0])  np.einsum('ij,jk->ik', x, x.T)  np.einsum('...ij->...ji', x)  np.einsum('ii', x[:4, :4])
np.einsum('ij,jk,kl->il', x, x.T, x)  np.einsum('ij,j', x, x[0], optimize=True)  np.linalg.norm(x)  np.linalg.norm(x, axis=0)
np.linalg.norm(x, axis=1, keepdims=True)  np.linalg.norm(x, ord='fro')  np.linalg.norm(x, np.inf)  np.linalg.norm(x, 1)  np.linalg.norm(x[0])
np.linalg.norm(x[0], 2)  np.linalg.norm(x[0], ord=0)  np.linalg.norm(x[0], -np.inf)  np.linalg.norm(x, ord=2, axis=1)  np.linalg.norm(x, axis=(0, 1))
np.linalg.norm(np.stack([x,x]))  np.linalg.matrix_power(x[:, :4], 3)  np.linalg.vector_norm(x)  np.linalg.vector_norm(x, axis=1, keepdims=True, ord=1)
np.linalg.multi_dot([x, x.T, x])  x.T  x.T.shape[0] * x.T  x.reshape(-1)  x.reshape(2, 12)  x.reshape((3, 8))  x.reshape(2, -1)
x.reshape(-1, order='F')  np.reshape(x, (8, 3))  np.reshape(x, -1)  np.reshape(x, shape=(8, 3))  x.ravel()  np.ravel(x)  x.flatten()  x.ravel('F')
x.flatten(order='F')  x.transpose()  x.transpose(1, 0)  x.transpose((1, 0))  np.transpose(x, (1, 0))  np.transpose(x)  np.permute_dims(x, (1, 0))
np.matrix_transpose(x)  x.swapaxes(0, 1)  np.swapaxes(x, -1, 0)  np.moveaxis(x, 0, -1)  np.moveaxis(np.stack([x, x]), [0, 1], [-1, -2])
np.rollaxis(np.stack([x, x]), 2)  np.expand_dims(x, 0)  np.expand_dims(x, (0, -1))  np.squeeze(x[:, :1])  np.squeeze(x[None], axis=0)
x[None].squeeze()  x[..., None].squeeze(-1)  np.atleast_2d(x[0])  np.atleast_1d(x[0, 0])  np.atleast_3d(x)  x[0]  x[-1]  x[1, 2]  x[1][2]  x[:, 0]
x[1:3]  x[::2]  x[::-1]  x[:, ::-1]  x[::-1, ::-2]  x[3:0:-1]  x[:, -2:]  x[..., 0]  x[..., -1:]  x[None]  x[:, None]  x[np.newaxis, ..., np.newaxis]
x[1, ..., None]  x[2:2]  x[10:]  x[:, 1:100]  x[-100:2]  x[[0, 2]]  x[[0, -1], :]  x[:, [1, 3, 5]]  x[[0, 1], [1, 2]]  x[[[0], [1]], [[1, 2]]]
x[np.ix_([0, 2], [1, 3])]  x[np.array([0, 1, 2])]  x[np.array([0, 1, 2]), 1:3]  x[1:3, [0, 2]]  x[[0, 1], None, :2]  x[0, [1, 2]]
x[[True, False, True, False]]  x[:, [True, False, True, False, True, True]]  x[np.array([True, False, True, False]), 1]  x[()]  x[...]  x[np.int64(1)]
x[np.array(1)]  x[x[0].astype(int)]  x[np.argmax(x[:, 0])]  x[:, np.argsort(x[0], kind='stable')]  x[np.arange(4), np.argmax(x, axis=1)]
x[slice(1, None)]  x.astype(np.float32)  x.astype('int32')  x.astype(float)  x.astype(bool)  x.astype(complex)  x.astype(np.uint8)  x.astype(np.int8)
x.astype('f2')  x.astype(x.dtype)  x.copy()  np.copy(x)  x.size * x  x.ndim * x  len(x) * x  np.size(x) * x  np.size(x, 0) * x  np.ndim(x) * x
np.shape(x)[0] * x  x.shape[1] * x  x.squeeze()  x.choose([1, 2])  x.cumprod(axis=1)  x.dtype.type(2) * x  x + x  x - x  x * x  x / x  x // x  x % x
x ** 2  x ** 3  x ** 0  x ** 1  x ** 0.5  x ** -1  x ** -2  x ** 1.5  x ** -0.5  x ** 2.0  x ** 3.0  x ** 1.0  x ** 0.0  x ** -1.0  x ** -2.0
x ** np.float64(2)  x ** np.array(2)  x ** np.array([1, 2, 3, 0, 1, 2])  2 ** x  2.0 ** x  x ** x  np.power(x, 2)  np.power(x, 0.5)  np.power(x, 3.0)
np.power(x, -1.0)  np.power(x, 2.5)  np.power(2, abs(x))  np.float_power(x, 2)  np.float_power(x, 0.5)  pow(x, 2)  -x  +x  abs(x)  ~x  x + 1  1 + x
x - 1  1 - x  x * 2  x / 2  2 / x  x // 2  5 // x  x % 3  7 % x  x + 1.5  x * 0.1  x - True  x + True  x + 1j  x * 2j  x + 200  x + 300  x - 300
x * -1  x + 2**40  x + 2**63  x + 2**70  x < 300  x == 2**70  x > -1  x != 1.5  x <= x.T[:, :4].T[:, :1]  x + np.int8(1)  x + np.int64(1)
x + np.uint8(200)  x + np.uint64(1)  x + np.float32(1)  x + np.float64(1)  x + np.float16(1)  x + np.bool_(True)  x + np.complex64(1)  x + np.array(1)
x + np.array([1])  x + [1, 2, 3, 4, 5, 6]  x + (1, 2, 3, 4, 5, 6)  np.array([1, 2, 3, 4, 5, 6]) - x  x & 3  x | 1  x ^ x  x & x  x << 1  x >> 1
1 << x  x << x  x >> np.array(70)  divmod(x, 3)  divmod(10, x)  divmod(x, x)  x > 1  (x > 1) & (x < 5)  (x > 1) | (x < -5)  ~(x > 1)  1 < x  x == x
x != x.mean()  list(x)  [r.sum() for r in x]  [a for a in x[0]]  np.add(x, 1)  np.add(x, x, dtype=np.float64)  np.add.reduce(x)
np.add.reduce(x, axis=1)  np.add.reduce(x, axis=None)  np.add.reduce(x, axis=(0, 1))  np.add.reduce(x, axis=0, keepdims=True)
np.add.reduce(x, dtype=np.float64)  np.add.reduce(x, initial=5)  np.add.reduce(x, where=x > 1)  np.multiply.reduce(x)  np.maximum.reduce(x)
np.maximum.reduce(x, axis=1)  np.minimum.reduce(x, axis=None)  np.logical_and.reduce(x)  np.logical_or.reduce(x, axis=1)  np.add.accumulate(x)
np.add.accumulate(x, axis=1)  np.multiply.accumulate(x)  np.maximum.accumulate(x)  np.maximum.accumulate(x, axis=1)  np.minimum.accumulate(x)
np.add.outer(x[0], x[1])  np.multiply.outer(x[0], x)  np.subtract.outer(x[0], x[0])  np.less.outer(x[0], x[1])  np.maximum.outer(x[0], x[1])
np.power.outer(x[0], [1, 2])  np.add.outer(x, 1)  np.ones(6, x.dtype) + x  np.array(3, x.dtype) * x  np.dtype(x.dtype).itemsize * x
np.can_cast(x.dtype, np.float64)  np.promote_types(x.dtype, np.float32) == np.float32  np.finfo(x.dtype).max + x  np.iinfo(x.dtype).max - x
np.isnan(x).sum()  np.isfinite(x).all()  np.isinf(x).any(axis=0)  np.signbit(x)  np.sign(x)  np.sign(x) * np.sqrt(np.abs(x))  np.sqrt(x)  np.cbrt(x)
np.square(x)  np.reciprocal(x)  np.exp(x)  np.exp2(x)  np.expm1(x)  np.log(x)  np.log1p(x)  np.log2(x)  np.log10(x)  np.log(np.abs(x) + 1)
np.logaddexp(x, 1)  np.logaddexp2(x, x)  np.sin(x)  np.cos(x)  np.tan(x)  np.arcsin(x)  np.arctan2(x, x + 1)  np.arctan2(1, x)  np.sinh(x)  np.tanh(x)
np.hypot(x, 3)  np.hypot(x, x)  np.deg2rad(x)  np.degrees(x)  np.rad2deg(x)  np.copysign(x, -1)  np.copysign(1, x)  np.nextafter(x, 10)  np.spacing(x)
np.ldexp(x, 2)  np.frexp(x)  np.modf(x)  np.gcd(x, 6)  np.lcm(x, 6)  np.heaviside(x, 0.5)  np.bitwise_count(x)  np.fmin(x, 1)  np.fmax(x, x.T.T)
np.fmod(x, 3)  np.fmod(x, -3)  np.remainder(x, -3)  np.mod(x, 3)  np.mod(-7, x)  np.floor_divide(x, 2)  np.floor_divide(x, -2)  np.true_divide(x, 3)
np.divide(x, 0)  np.maximum(x, 0)  np.maximum(x, 0.5)  np.minimum(x, x[0])  np.maximum(0, x)  np.logical_and(x, x > 1)  np.logical_or(x, 0)
np.logical_not(x)  np.logical_xor(x, 1)  np.bitwise_and(x, 1)  np.invert(x)  np.left_shift(x, 2)  np.right_shift(x, 1)  np.equal(x, 1)
np.greater(x, x[0])  np.less_equal(x, 2.5)  np.positive(x)  np.negative(x)  np.absolute(x)  np.fabs(x)  np.count_nonzero(x)  np.count_nonzero(x > 1)
np.count_nonzero(x, axis=0, keepdims=True)  np.count_nonzero(x, axis=(0, 1))  np.lib.stride_tricks.sliding_window_view(x, (2, 3))
np.lib.stride_tricks.sliding_window_view(x[0], 3).mean(axis=-1)  np.tri(4, 6) * x  x[np.triu_indices(4)]  x[np.tril_indices(4, -1)]
x[np.diag_indices(4)]  x[np.unravel_index(5, (4, 6))]  np.cumsum(x)[-1]  np.mean(x - np.mean(x)) ** 2  (x - x.mean(axis=0)) / (x.std(axis=0) + 1)
np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))  np.maximum(x, 0) @ np.ones((6, 3), x.dtype)  np.log(np.sum(np.exp(x)))  np.where(x > 0, x, 0.01 * x)
x[1:] - x[:-1]  x[:, 1:] * x[:, :-1]  np.sum(x * np.arange(6))  1 / (1 + np.exp(-x))  x * (x > 0)  (x > 0).sum()  (x > 0).mean()  (x > 0) * 2
(x > 0) + (x < 0)  (x > 0) - 1  (x > 0) / 2  np.sum(x > 0, axis=0) / 4  np.argmax(x > 1, axis=1)  np.abs(x) ** 0.5  np.zeros(3)  np.dot(np.ones(4), x)
x + np.zeros((4, 6), np.float16)  x + np.ones(6, np.uint8)  x * np.ones(6, np.int8)  x / np.ones(6, np.int8)  x % np.full(6, 3, np.int8)
x // np.full(6, 3, np.uint8)  x + np.float32(0.1)  x * np.pi  x + np.inf  x * np.nan  x == np.nan  x + np.e  np.uint8(200) + x  np.int8(100) * x
np.float16(0.1) * x  np.take(x, [True, False])  np.take(x, [9, -9], mode='clip')  np.take(x, [9, -9], mode='wrap', axis=1)
np.choose(x[0].astype(int), [x[0], x[1]], mode='wrap')  np.choose(x[0]>1, [x[0], x[1]])  np.choose([0,5,-1,2,2,2], [x[0], x[1]], mode='wrap')
np.choose([0,1,0,1,1,0], [x[0], 7])  np.select([x > 3, x > 1], [x, 1.5], 0)  np.select([x > 3, True], [x, 1.5], 0)
np.select([x > 3, x > 1], [1, 2.5], 0)  np.select([x > 3], [x[0]], [1,2,3,4,5,6])  x[..., np.array([True,False,True,True,False,False])]
x[[True, False, True, False], :2]  x[[True, False, True, False], [0,1]]  x[[True, False, True, False], None, [0,1]]
np.stack([x,x])[[True,False], :, [2,1]]  np.stack([x,x])[..., [2,1], [0,3]]  np.stack([x,x])[0, :, [2,1]]  np.stack([x,x])[:, 0, [2,1]]
x[np.array([], int)]  np.convolve(x[0], [1, 2, 3, 4], mode='same')  np.add.reduce(x, axis=1, where=[True,False,True,True,False,True], keepdims=True)
np.add.reduce(x, 1)  np.multiply.reduce(x, 0, np.float64)  np.maximum.reduce(x, axis=0, initial=5, where=x>2)
np.logical_and.reduce(x, axis=(0,1), keepdims=True)  np.vecdot(x, x[0])  np.lib.stride_tricks.sliding_window_view(x, (3,2))
np.lib.stride_tricks.sliding_window_view(x, 3, axis=0)  np.where(x > 1, 1, 0)  np.where(x > 1, [1], 0.5)  np.power(x, 2.0)  np.power(x, 1)
np.power(x, 0)  x ** True  x[0].sum() ** 2  np.add.outer(x[0], 1)  np.multiply.outer(x, x[0])  np.multiply.outer([1,2], x[0])
np.power.outer(x[0], [1, 2])  np.maximum.outer(x[0], 1.5)  np.divmod.outer(x[0], x[0])  np.add.outer(x, x, dtype=np.float64)
np.add.accumulate(x, 1, np.float32)  np.add.accumulate(x, dtype='f4')  np.multiply.accumulate(x[0])  np.maximum.accumulate(x, axis=-1)
np.minimum.accumulate(x[0])  np.cumsum(x, axis=1)  np.cumprod(x, axis=0, dtype=np.float32)  np.sum(x)  np.sum(x, axis=0)  np.prod(x, axis=1)
np.mean(x)  np.mean(x, axis=0)  np.var(x)  np.std(x, axis=1)  np.einsum('ij,kj->ik', x, x)  np.convolve(x[0], x[1])  np.linalg.norm(x, axis=1)
np.average(x, axis=0)  np.median(x, axis=0)  np.interp(x, [0,1,2],[0,10,20])  np.linspace(x[0], x[1], 5)  np.trace(x, dtype='f4')  x.trace(1, dtype='i8')  np.nanvar(x, axis=0)  np.nanstd(x)
""".replace("\n", "  ").strip().split("  ")  # fmt: skip
OF_STACKS = """
x.sum(axis=(0,2))  x.mean(axis=(1,2), keepdims=True)  x.max(axis=(0,2))  np.cumsum(x, axis=1)  np.argmax(x, axis=1)  np.sort(x, axis=1)
np.argsort(x, axis=0, kind='stable')  np.diff(x, axis=1)  np.concatenate([x, x], axis=2)  np.stack([x, x], axis=2)  np.transpose(x, (2, 0, 1))
np.moveaxis(x, 1, 2)  np.swapaxes(x, 0, 2)  np.rollaxis(x, 2, 1)  x.T  x.reshape(4, -1)  x[:, 1, ::-1]  x[..., 0, None]  x[:, [0, 2], 1]
x[[0, 1], :, [1, 2]]  x[0, [0, 1], [1, 2]]  x[:, np.newaxis, [0, 1]]  x[1][::-1][0]  x[:, :, 1:3] * 2  np.take(x, [1, 0], axis=1)
np.take_along_axis(x, np.argmax(x, axis=1)[:, None], axis=1)  np.matmul(x, np.swapaxes(x, -1, -2))  x @ np.ones((4, 2))  np.ones(3) @ x
np.einsum('bij,bkj->bik', x, x)  np.einsum('...j->...', x)  np.einsum('ijk,ijk->', x, x)  np.einsum('ijk->kji', x)
np.einsum('bij,bjk', x, np.swapaxes(x, 1, 2))  np.tensordot(x, x, axes=([1, 2], [1, 2]))  np.dot(x, np.ones((4, 3)))  np.dot(x, np.ones(4))
np.inner(x, x[0])  np.trace(x)  np.diagonal(x, axis1=1, axis2=2)  np.linalg.norm(x, axis=2)  np.linalg.norm(x, axis=(1, 2))  np.linalg.norm(x)
np.var(x, axis=(0, 2))  np.std(x, axis=1, ddof=1)  np.median(x, axis=1)  np.average(x, axis=2, weights=[1, 2, 3, 4])
np.pad(x, ((0, 0), (1, 1), (2, 0)))  np.pad(x, 1, mode='edge')  np.roll(x, (1, 2), axis=(1, 2))  np.flip(x, (0, 2))  np.rot90(x, axes=(1, 2))
np.tile(x, (1, 2, 1))  np.repeat(x, [1, 2, 0], axis=1)  np.split(x, 3, axis=1)  np.dsplit(x, 2)  np.dstack([x, x])  np.tril(x)  np.triu(x, 1)
np.where(x > x.mean(axis=0), x, 0)  np.clip(x, x[0], x[1])  np.broadcast_to(x[:, :1], (2, 3, 4))  np.kron(x[0], x[1])
np.cross(x[..., :3], x[..., 1:])  np.cross(x[:, :, 0], x[:, :, 1])  np.outer(x, x[0])  np.count_nonzero(x, axis=(1, 2))  np.nansum(x, axis=(0, 1))
np.all(x > 0, axis=(0, 2))  np.ptp(x, axis=1)  np.interp(x, [0, 1, 2], [3, 2, 1])  np.searchsorted([0, 1, 2, 3], x)  np.digitize(x, [0, 1, 2])
np.histogram(x, [0, 1, 2, 3])[0]  np.select([x > 2, x > 1], [x, -x])  np.choose((x > 1).astype(np.int64), [x, x * 2])  np.linspace(x, x + 1, 3)
np.linspace(x[0], x[1], 3, axis=1)  np.meshgrid(x[0, 0], x[0, :, 0], [1, 2])  np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(1, 2))
np.lib.stride_tricks.sliding_window_view(x, 2, axis=2).sum(-1)  np.expand_dims(x, (1, -1))  np.squeeze(x[:, :1], 1)  np.array_split(x, 2, axis=2)
np.append(x, x, axis=1)  np.ravel(x, 'F')  x.flatten()  x.argmin()  np.round(x * 10) / 10  x.std(axis=(0, 1, 2))  np.convolve(x.ravel(), [1, -1])
np.vecdot(x, x)  np.vecdot(x, x, axis=0)  np.matvec(x, x[:, 0])  np.vecmat(x[:, :, 0], x)  np.vecmat(x[:, :, 0], x)[..., None]
np.linalg.matmul(x, np.swapaxes(x, 1, 2))  np.linalg.trace(x)  np.linalg.matrix_norm(x)  np.add.reduce(x, axis=(0, 2))
np.maximum.accumulate(x, axis=2)  np.add.accumulate(x, axis=1)  np.bitwise_or(x > 1, x < 0)  x - x.mean(axis=(1, 2), keepdims=True)
(x - x.min()) / (x.max() - x.min())  x / x.sum(axis=-1, keepdims=True)  x ** np.arange(4)  np.arange(4) ** x[0]  x % (np.arange(4) + 1)
(np.arange(4) + 1) // x  x * np.arange(3)[:, None]  x + np.arange(4, dtype=np.uint8)  x + np.arange(4, dtype=np.int8)
x * np.arange(4, dtype=np.float16)  x - np.arange(4, dtype=np.float32)  np.hypot(x, np.arange(4))  np.arctan2(x, np.arange(4, dtype=np.float32))
np.fmod(x, np.float32(2.5))  np.copysign(x, -np.arange(4.0))  np.logaddexp(x, np.float32(1))  np.ldexp(x, np.arange(4))
np.float_power(x, np.arange(4))  np.maximum(x, np.arange(4, dtype=np.int8))  np.left_shift(x, np.arange(4))  np.gcd(x, np.arange(4))
np.where(x > 1, x, np.arange(4, dtype=np.int8))
np.concatenate([x, np.arange(4, dtype=np.int8).reshape(1, 1, 4) * np.ones((2, 1, 1), np.int8)], axis=1)
np.stack([x[0, 0], np.arange(4, dtype=np.float32)])  np.isclose(x, np.arange(4))  np.allclose(x, np.float32(1))  np.array_equal(x[0], x[1])
x[0] == x[1]  x.sum() / x.size  x.sum() * 0.5  x.sum() + 1  x.mean() * np.float32(2)  x[0, 0, 0] + 1.5  x[0, 0, 0] * np.float32(1.5)  x[0, 0, 0] ** 2
x.max() - 1  -x.sum()  abs(x.min())  x.sum() // 3  x.sum() % 7  divmod(x.sum(), 7)  x.sum() > 3  x.any() & (x.sum() > 3)  ~(x > 1).any()
(x > 1).sum() / x.size  (x > 1).sum(axis=0, dtype=np.int8)  x.sum(dtype=np.int8)  x.astype(np.uint8) - 1  x.astype(np.int8) * 100
x.astype(np.int16) << 3  x.astype(np.uint8) / 2  x.astype(np.float16) + 1e-4  x.astype(np.float16).sum()  x.astype(np.float16).mean(axis=0)
x.astype(np.float32).mean()  x.astype(np.int32).mean(axis=1)  x.astype(np.uint8).sum()  x.astype(np.uint32).prod(axis=1)  x.astype(bool).mean()
x.astype(bool) + x.astype(bool)  x.astype(bool) * x.astype(bool)  x.astype(bool) - x.astype(bool)  x.astype(bool) ** 2  x.astype(bool) // True
x.astype(bool) % True  x.astype(bool) << 1  np.add(x.astype(bool), x.astype(bool), dtype=np.int32)  np.sqrt(x.astype(np.int8))
np.sqrt(x.astype(np.int16))  np.sqrt(x.astype(np.int32))  np.exp(x.astype(np.uint8))  np.sin(x.astype(bool))  np.floor(x.astype(np.int8))
np.trunc(x.astype(bool))  np.sign(x.astype(np.uint8))  np.abs(x.astype(np.int8))  np.mean(x.astype(np.int8))  np.var(x.astype(np.int8))
np.cumsum(x.astype(np.int8))  np.cumprod(x.astype(bool))  np.dot(x[0].astype(np.int8), x[0].T.astype(np.int8))
np.dot(x[0].astype(bool), x[0].T.astype(bool))  np.diff(x.astype(bool))  np.diff(x.astype(np.uint8))  np.power(x.astype(np.int8), 2)
np.power(x.astype(np.int8), 2.0)  np.divide(x.astype(np.int8), x.astype(np.int8))  np.true_divide(1, x.astype(np.uint8))
np.reciprocal(x.astype(np.int32))  np.linspace(0, x[0, 0].astype(np.int32), 3)  np.interp(x.astype(np.float32), [0, 1], [0, 1])
np.clip(x.astype(np.uint8), 1, 3)  np.clip(x.astype(np.uint8), 1.5, 3)  np.clip(x.astype(np.int8), -1000, 3)  np.round(x.astype(np.int8), -1)
np.round(x.astype(np.float32), 3)  np.full_like(x, 3.7, dtype=int)  np.ones_like(x, dtype=np.float16) * x  np.zeros_like(x, shape=(2,)) + 1
np.asarray(2) * x  np.float32(2) * x.astype(np.float32)  np.float64(2) * x.astype(np.float32)  np.int64(2) * x.astype(np.int8)
np.array(2.0) * x.astype(np.float32)  np.array([2.0]) * x.astype(np.float32)  2.0 * x.astype(np.float32)  True * x.astype(np.int8)
np.True_ * x.astype(np.int8)  1j * x.astype(np.float32)
""".replace("\n", "  ").strip().split("  ")  # fmt: skip
