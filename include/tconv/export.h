/* Marks what a shared libtconv exports. */
#ifndef TCONV_EXPORT_H
#define TCONV_EXPORT_H

#if defined(_WIN32)
#if defined(TCONV_BUILDING)
#define TCONV_API __declspec(dllexport)
#else
#define TCONV_API __declspec(dllimport)
#endif
#else
#define TCONV_API __attribute__((visibility("default")))
#endif

#endif
